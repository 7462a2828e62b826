// Counts values in 2,048 bins: by atomic additions to the totals in global memory, or to a copy in shared memory that is added
// to the totals at the end (REPAIRED=1).
#include <warplens.cuh>

constexpr int THREADS = 1024, BINS = 2048, CHUNK = 32;

extern "C" __global__ void __launch_bounds__(THREADS)
    bin_counts(const float* values, unsigned* totals, int chunks, wl::Buffer prof) {
  wl::Kernel k(prof);
#if REPAIRED
  __shared__ unsigned bins[BINS];
  for (int i = threadIdx.x; i < BINS; i += THREADS) bins[i] = 0;
  __syncthreads();
#else
  unsigned* const bins = totals;
#endif
  const float* const mine = values + static_cast<long long>(blockIdx.x) * chunks * CHUNK * THREADS + threadIdx.x;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    int bin[CHUNK];
    {
      WL_REGION("find bin");
#pragma unroll
      for (int i = 0; i < CHUNK; ++i) bin[i] = static_cast<int>(mine[(chunk * CHUNK + i) * THREADS] * BINS) & (BINS - 1);
    }
    WL_REGION("count");
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) atomicAdd(&bins[bin[i]], 1u);
  }
#if REPAIRED
  WL_REGION("merge");
  __syncthreads();
  for (int i = threadIdx.x; i < BINS; i += THREADS) atomicAdd(&totals[i], bins[i]);
#endif
}
