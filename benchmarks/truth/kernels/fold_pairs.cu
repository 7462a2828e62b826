// Sums of 512 values that a block makes itself, by folding pairs in shared memory: neighbours first, or halves first
// (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256) fold_pairs(float* sums, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float v[512];
  const int t = threadIdx.x;
  float total = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("fill");
      v[t] = (t + round) % 7;
      v[t + 256] = (t + round) % 5;
      __syncthreads();
    }
    {
      WL_REGION("fold");
#if REPAIRED
      for (int s = 256; s; s >>= 1) {
        if (t < s) v[t] += v[t + s];
        __syncthreads();
      }
#else
      for (int s = 1; s < 512; s <<= 1) {
        const int at = 2 * s * t;
        if (at < 512) v[at] += v[at + s];
        __syncthreads();
      }
#endif
    }
    total += v[0];
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = total;
}
