// Kernels of which it is known how much of a delay in each region reaches the end.
#include <warplens.cuh>

// `n` times 16 dependent fmas, which no compiler moves out of its region.
__device__ __forceinline__ void work(float& v, int n) {
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 0; j < 16; ++j) asm volatile("fma.rn.f32 %0, %0, 0f3F000347, 0f3F000000;" : "+f"(v));
  }
}

// One region after the other in every warp: all of a delay reaches the end.
extern "C" __global__ void serial(float* x, int steps, int first, int second, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[thread];
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    { WL_REGION("first"); work(v, first); }
    { WL_REGION("second"); work(v, second); }
  }
  x[thread] = v;
}

// Two warps meet after each step, which is as long as the longer side. The sides have other lengths in odd steps.
extern "C" __global__ void sides(float* x, int steps, int produce, int consume, int odd_produce, int odd_consume,
                                 wl::Buffer prof) {
  wl::Kernel k(prof);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  const bool producer = threadIdx.x < 32;
  float v = x[thread];
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    if (producer) {
      WL_REGION("produce");
      work(v, i & 1 ? odd_produce : produce);
    } else {
      WL_REGION("consume");
      work(v, i & 1 ? odd_consume : consume);
    }
    __syncthreads();
  }
  x[thread] = v;
}

// Four warps take turns: the delays of all of them reach the end.
extern "C" __global__ void turns(float* x, int steps, int length, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  const int warp = threadIdx.x / 32;
  float v = x[thread];
#pragma unroll 1
  for (int i = 0; i < 4 * steps; ++i) {
    if (warp == (i & 3)) {
      WL_REGION("turn");
      work(v, length);
    }
    __syncthreads();
  }
  x[thread] = v;
}

// Every other block is four times as long: the end waits for those alone.
extern "C" __global__ void uneven(float* x, int steps, int length, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[thread];
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    if (blockIdx.x & 1) {
      WL_REGION("short block");
      work(v, length);
    } else {
      WL_REGION("long block");
      work(v, 4 * length);
    }
  }
  x[thread] = v;
}
