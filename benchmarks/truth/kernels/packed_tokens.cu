// Sums of squares over the tokens of packed sequences, whose rows lie elsewhere for each sequence. A warp looks up the
// sequence of each token and brings its row to four others: by one lane, or by a lane for each token (REPAIRED=1).
#include <warplens.cuh>

constexpr int WORKERS = 4, STAGES = 4, TOKENS = 32, WIDTH = 64;

__device__ __forceinline__ unsigned shared_at(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void wait_for(unsigned long long* barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.b32 %0, 1, 0, complete;\n}" : "=r"(done) : "r"(shared_at(barrier)), "r"(parity) : "memory");
}

__device__ __forceinline__ void bring(float* to, const float* from, unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
      "l"(from), "n"(WIDTH * 4), "r"(shared_at(barrier)) : "memory");
}

// The row of a token: `ends` has the first token after each sequence, `places` what to add to its tokens' numbers.
__device__ __forceinline__ int row_of(int token, const int* ends, const int* places, int sequences) {
  int low = 0, high = sequences - 1;
#pragma unroll 1
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] > token) high = middle;
    else low = middle + 1;
  }
  return token + places[low];
}

extern "C" __global__ void __launch_bounds__(32 * (WORKERS + 1))
    packed_tokens(const float* values, const int* ends, const int* places, float* sums, int sequences, int tiles,
                  wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float ring[STAGES][TOKENS * WIDTH];
  __shared__ unsigned long long filled[STAGES], drained[STAGES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(&filled[stage])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(&drained[stage])), "n"(WORKERS));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warp == WORKERS) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      WL_REGION("gather");
      const int stage = tile % STAGES, first = (blockIdx.x * tiles + tile) * TOKENS;
      wait_for(&drained[stage], (tile / STAGES & 1) ^ 1);
      if (lane == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(&filled[stage])),
                     "n"(TOKENS * WIDTH * 4) : "memory");
      __syncwarp();
#pragma unroll 1
      for (int token = REPAIRED ? lane : 0; token < TOKENS; token += REPAIRED ? 32 : 1) {
        if (!REPAIRED && lane) break;
        const long long row = row_of(first + token, ends, places, sequences);
        bring(ring[stage] + token * WIDTH, values + row * WIDTH, &filled[stage]);
      }
      __syncwarp();
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("tokens");
        wait_for(&filled[stage], tile / STAGES & 1);
      }
      {
        WL_REGION("squares");
#pragma unroll
        for (int i = threadIdx.x; i < TOKENS * WIDTH; i += 32 * WORKERS) sum += ring[stage][i] * ring[stage][i];
        __syncwarp();
      }
      if (lane == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(&drained[stage])) : "memory");
    }
    sums[blockIdx.x * 32 * WORKERS + threadIdx.x] = sum;
  }
}
