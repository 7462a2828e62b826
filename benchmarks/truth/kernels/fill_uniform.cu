// Fills an array with uniform random numbers that depend on a counter: a thread keeps a run of 16 of them, or every
// 256th of its block's (REPAIRED=1).
#include <warplens.cuh>

constexpr int RUN = 16, THREADS = 256;

__device__ __forceinline__ float uniform(unsigned counter) {
  unsigned x = counter * 747796405u + 2891336453u;
  x = ((x >> ((x >> 28) + 4)) ^ x) * 277803737u;
  x = (x >> 22) ^ x;
  return (x >> 8) * 5.9604644775390625e-8f;
}

extern "C" __global__ void __launch_bounds__(THREADS) fill_uniform(float* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  float drawn[RUN];
#if REPAIRED
  const unsigned first = blockIdx.x * THREADS * RUN + threadIdx.x, stride = THREADS;
#else
  const unsigned first = (blockIdx.x * THREADS + threadIdx.x) * RUN, stride = 1;
#endif
  {
    WL_REGION("draw");
#pragma unroll
    for (int i = 0; i < RUN; ++i) drawn[i] = uniform(first + i * stride);
  }
  WL_REGION("keep");
#pragma unroll
  for (int i = 0; i < RUN; ++i) out[first + i * stride] = drawn[i];
}
