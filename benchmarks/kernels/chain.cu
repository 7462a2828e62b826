// One region per iteration around a chain of dependent fmas: what a mark adds to real work.
#include <warplens.cuh>
#ifndef LENGTH
#define LENGTH 64
#endif
extern "C" __global__ void chain(unsigned long long* cycles, float* x, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[thread];
  unsigned long long t0, t1;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t0)::"memory");
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    WL_REGION("work");
#pragma unroll
    for (int j = 0; j < LENGTH; ++j) asm volatile("fma.rn.f32 %0, %0, 0f3F800347, 0f3F000000;" : "+f"(v));
  }
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t1)::"memory");
  x[thread] = v;
  if ((threadIdx.x & 31) == 0) cycles[thread / 32] = t1 - t0;
}
