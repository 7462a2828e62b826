// Kernels whose records are known in advance. Compiled by nvcc for the GPU tests and by g++ through the shim.
#include <warplens.cuh>

// Two nested regions, an instant and values per step.
__global__ void nested(int* out, int steps, wl::Buffer prof) {
  wl::Kernel k(prof);
  int sum = 0;
  for (int i = 0; i < steps; ++i) {
    WL_REGION("step");
    { WL_REGION("inner"); sum += i; }
    WL_BEGIN("manual");
    WL_INSTANT("tick");
    WL_VALUE("index", i);
    WL_VALUE("half", 0.5 * i);
    WL_END("manual");
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Odd lanes leave first, then the even lanes of even warps, in the middle of a region.
__global__ void early(int* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  WL_REGION("outer");
  out[i] = 1;
  if (threadIdx.x & 1) return;
  out[i] = 2;
  WL_BEGIN("open");
  if (threadIdx.x / 32 % 2 == 0) return;
  out[i] = 3;
  WL_END("open");
}

// Lane 0 takes one side, the other lanes the other.
__global__ void diverge(int* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {
    WL_REGION("both");
    if (threadIdx.x % 32 == 0) {
      WL_REGION("lane 0");
      out[i] = 1;
    } else {
      WL_REGION("others");
      out[i] = 2;
    }
  }
  WL_INSTANT("after");
}

#ifndef ONE_LEADER
template <class Leader>
__device__ void ticks(wl::Buffer prof, Leader leader) {
  wl::Kernel k(prof, leader);
  WL_INSTANT("a");
  WL_INSTANT("b");
}
__global__ void by_block(wl::Buffer prof) { ticks(prof, wl::per_block); }
__global__ void by_warp1(wl::Buffer prof) { ticks(prof, wl::warp(1)); }
__global__ void by_lane5(wl::Buffer prof) { ticks(prof, wl::lane(5)); }
__global__ void by_thread(wl::Buffer prof) { ticks(prof, wl::every_thread); }
__global__ void by_predicate(wl::Buffer prof) { ticks(prof, wl::when(threadIdx.x % 32 > 6 && threadIdx.x < 64)); }
#endif

// Marks in a function that is not inlined.
__noinline__ __device__ int apart(int v, wl::Link& link) {
  wl::Callee here(link);
  WL_REGION("apart");
  return v * 3;
}
__global__ void linked(int* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_INSTANT("before");
  {
    wl::Link link;
    out[blockIdx.x * blockDim.x + threadIdx.x] = apart(threadIdx.x, link);
  }
  WL_INSTANT("after");
}

__global__ void async_copy(wl::Buffer prof) {
  wl::Kernel k(prof);
  for (int i = 0; i < 3; ++i) WL_ASYNC_BEGIN("copy", i);
  WL_ANCHOR();
  for (int i = 0; i < 3; ++i) WL_ASYNC_END("copy", i);
  for (unsigned i = 0; i < 65; ++i) WL_ITERATION("round", i);
}
