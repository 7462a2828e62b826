// MinHash sketches of batches of sequencing reads, sorted by length: the smallest values of eight hash functions over
// all words of 16 bases. Each warp takes eight reads of the batch, or the longest one that is left (REPAIRED=1).
#include <warplens.cuh>

constexpr int WARPS = 8, READS = 64, HASHES = 8;

__device__ __forceinline__ unsigned hashed(unsigned word, unsigned seed) {
  word ^= seed * 0x9e3779b9u;
  word = (word ^ (word >> 16)) * 0x85ebca6bu;
  word = (word ^ (word >> 13)) * 0xc2b2ae35u;
  return word ^ (word >> 16);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    read_sketches(const unsigned* bases, const int* first, const int* lengths, int* sketches, int batches,
                  wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned least[HASHES];
  __shared__ int taken;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int batch = blockIdx.x; batch < batches; batch += gridDim.x) {
    if (threadIdx.x < HASHES) least[threadIdx.x] = ~0u;
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    {
      WL_REGION("reads");
#pragma unroll 1
      for (int turn = 0; turn < (REPAIRED ? READS : READS / WARPS); ++turn) {
        int read = warp * (READS / WARPS) + turn;
#if REPAIRED
        if (lane == 0) read = READS - 1 - atomicAdd(&taken, 1);
        read = __shfl_sync(~0u, read, 0);
        if (read < 0) break;
#endif
        const unsigned* const from = bases + first[batch * READS + read];
        const int words = lengths[batch * READS + read] - 15;
        unsigned low[HASHES];
        for (int seed = 0; seed < HASHES; ++seed) low[seed] = ~0u;
#pragma unroll 1
        for (int at = lane; at < words; at += 32) {
          const unsigned word = __funnelshift_r(from[at / 16], from[at / 16 + 1], 2 * (at % 16));
#pragma unroll
          for (int seed = 0; seed < HASHES; ++seed) low[seed] = min(low[seed], hashed(word, seed + 1));
        }
#pragma unroll
        for (int seed = 0; seed < HASHES; ++seed) {
          const unsigned all = __reduce_min_sync(~0u, low[seed]);
          if (lane == 0) atomicMin(&least[seed], all);
        }
      }
    }
    WL_REGION("sketch");
    __syncthreads();
    if (threadIdx.x < HASHES) sketches[batch * HASHES + threadIdx.x] = least[threadIdx.x] >> 1;
    __syncthreads();
  }
}
