// The CUDA runtime calls of warplens_host.h and sm_profiler.h on host memory. Allocations carry guard bytes.
#pragma once
#include <cstdio>

#include "cuda_shim.h"

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
constexpr unsigned long long cudaEnableDefault = 0;
#define CUDART_VERSION 13000

struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount, major, minor;
};

namespace shim {
constexpr std::size_t guard = 4096;
inline bool guards_intact = true;
inline std::vector<std::pair<unsigned char*, std::size_t>> allocations;
inline void check_guards() {
  for (auto [at, size] : allocations)
    for (std::size_t i = 0; i < guard; ++i)
      if (at[i] != 0xa5 || at[guard + size + i] != 0xa5) guards_intact = false;
}
}  // namespace shim

inline const char* cudaGetErrorString(cudaError_t) { return "shim"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
template <class T>
cudaError_t cudaMalloc(T** out, std::size_t size) {
  auto* at = static_cast<unsigned char*>(std::aligned_alloc(4096, (2 * shim::guard + size + 4095) / 4096 * 4096));
  std::memset(at, 0xa5, shim::guard);
  std::memset(at + shim::guard + size, 0xa5, shim::guard);
  shim::allocations.emplace_back(at, size);
  *out = reinterpret_cast<T*>(at + shim::guard);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void*) { return cudaSuccess; }
inline cudaError_t cudaMemset(void* at, int value, std::size_t size) { return std::memset(at, value, size), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* at, int value, std::size_t size, cudaStream_t) { return cudaMemset(at, value, size); }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
  return std::memcpy(to, from, size), cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, size, kind);
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* index) { return *index = 0, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::snprintf(p->name, sizeof p->name, "shim");
  p->multiProcessorCount = 4;
  p->major = 0;
  p->minor = 0;
  return cudaSuccess;
}
