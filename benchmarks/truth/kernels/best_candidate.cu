// The largest score of all and its place. Blocks compare with the best so far under a lock, or by one atomic maximum of
// both packed into a word (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    best_candidate(const unsigned* scores, int rounds, volatile unsigned* best, int* mutex, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned long long parts[8];
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const unsigned at = (blockIdx.x * rounds + round) * 256 + threadIdx.x;
    unsigned long long key;
    {
      WL_REGION("scan");
      key = static_cast<unsigned long long>(scores[at]) << 32 | ~at;
#pragma unroll
      for (int step = 16; step; step /= 2) {
        const unsigned long long other = __shfl_xor_sync(~0u, key, step);
        if (other > key) key = other;
      }
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = key;
      __syncthreads();
    }
    WL_REGION("merge");
    if (threadIdx.x == 0) {
      for (int i = 1; i < 8; ++i)
        if (parts[i] > key) key = parts[i];
#if REPAIRED
      atomicMax(reinterpret_cast<unsigned long long*>(const_cast<unsigned*>(best)), key);
#else
      while (atomicCAS(mutex, 0, 1)) {
      }
      __threadfence();
      const unsigned score = key >> 32;
      if (score > best[1] || (score == best[1] && static_cast<unsigned>(key) > best[0])) {
        best[0] = static_cast<unsigned>(key);
        best[1] = score;
      }
      __threadfence();
      atomicExch(mutex, 0);
#endif
    }
    __syncthreads();
  }
}
