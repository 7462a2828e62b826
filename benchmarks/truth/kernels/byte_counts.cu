// How often each byte occurs. Blocks count in shared memory and then add to the totals: one block at a time, under a lock,
// or all at once by atomic additions (REPAIRED=1).
#include <warplens.cuh>

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    byte_counts(const unsigned* words, unsigned* totals, unsigned* lock, int words_per_thread, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned counts[256];
  {
    WL_REGION("count");
    counts[threadIdx.x] = 0;
    __syncthreads();
    const unsigned* const mine = words + static_cast<long long>(blockIdx.x) * words_per_thread * THREADS + threadIdx.x;
#pragma unroll 4
    for (int i = 0; i < words_per_thread; ++i) {
      const unsigned word = mine[i * THREADS];
      for (int shift = 0; shift < 32; shift += 8) atomicAdd(&counts[word >> shift & 255], 1u);
    }
    __syncthreads();
  }
#if REPAIRED
  WL_REGION("add to totals");
  atomicAdd(&totals[threadIdx.x], counts[threadIdx.x]);
#else
  {
    WL_REGION("wait for lock");
    if (threadIdx.x == 0)
      while (atomicCAS(lock, 0u, 1u) != 0u) {
      }
    __syncthreads();
    __threadfence();
  }
  {
    WL_REGION("add to totals");
    volatile unsigned* const total = &totals[threadIdx.x];
    *total = *total + counts[threadIdx.x];
    __threadfence();
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicExch(lock, 0u);
#endif
}
