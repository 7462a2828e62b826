// How many tokens each of 8 experts gets: an atomic per token, or one per block and expert (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    expert_counts(const int* expert, int* counts, int tokens, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int mine[8];
  if (threadIdx.x < 8) mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < tokens; i += gridDim.x * 256) {
    int one;
    {
      WL_REGION("which");
      one = expert[i];
    }
    WL_REGION("tally");
#if REPAIRED
    atomicAdd(&mine[one], 1);
#else
    atomicAdd(&counts[one], 1);
#endif
  }
  WL_REGION("total");
  __syncthreads();
#if REPAIRED
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
#endif
}
