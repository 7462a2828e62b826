// Each warp follows chains of different lengths, all warps as many links in all, and combines what it finds in its own part
// of shared memory. The whole block waits after each chain although no warp reads another's part; REPAIRED=1 waits for the
// warp alone.
#include <warplens.cuh>

constexpr int THREADS = 256, WARPS = THREADS / 32;

__device__ __forceinline__ void wait_for_part() {
#if REPAIRED
  __syncwarp();
#else
  __syncthreads();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    probe_chains(const int* next, const int* lengths, int* found, int mask, int batches, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int parts[WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, number = blockIdx.x * WARPS + warp;
  int at = number & mask, sum = 0;
#pragma unroll 1
  for (int batch = 0; batch < batches; ++batch) {
    {
      WL_REGION("walk");
      const int length = lengths[number * batches + batch];
      for (int step = 0; step < length; ++step) at = __ldcg(next + at);
      parts[warp][lane] = at * lane;
    }
    {
      WL_REGION("wait for part");
      wait_for_part();
    }
    WL_REGION("combine");
    sum ^= parts[warp][lane ^ 1] + batch;
    __syncwarp();
  }
  WL_REGION("store");
  found[number * 32 + lane] = sum;
}
