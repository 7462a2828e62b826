// Sums of blocks of 1,024 values, one after the other: by a tree in shared memory with a barrier per level, or by shuffles
// with one (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(1024) tree_sums(const float* x, float* sums, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[2][1024];
  const int t = threadIdx.x;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    float value;
    {
      WL_REGION("fetch");
      value = x[(blockIdx.x * rounds + round) * 1024 + t];
    }
    WL_REGION("combine");
    float* const mine = parts[round % 2];
#if REPAIRED
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (t % 32 == 0) mine[t / 32] = value;
    __syncthreads();
    if (t < 32) {
      value = mine[t];
      for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    }
#else
    mine[t] = value;
    __syncthreads();
    for (int half = 512; half; half /= 2) {
      if (t < half) mine[t] += mine[t + half];
      __syncthreads();
    }
    value = mine[0];
#endif
    if (t == 0) sums[blockIdx.x * rounds + round] = value;
  }
}
