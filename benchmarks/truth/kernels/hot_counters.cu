// How many values are odd: each thread adds to one counter of the block for every value, or counts for itself first
// (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(512) hot_counters(const int* values, int* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int odd[4];
  if (threadIdx.x < 4) odd[threadIdx.x] = 0;
  __syncthreads();
  int mine = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    int value[4];
    {
      WL_REGION("get");
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = values[((blockIdx.x * rounds + round) * 4 + i) * 512 + threadIdx.x];
    }
    WL_REGION("add");
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if REPAIRED
      mine += value[i] & 1;
#else
      atomicAdd(&odd[value[i] >> 1 & 1], value[i] & 1);
#endif
    }
  }
  WL_REGION("total");
#if REPAIRED
  for (int step = 16; step; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&odd[0], mine);
#endif
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = odd[0] + odd[1];
}
