// Sums of a smooth activation. One warp copies tiles into a ring of stages in shared memory, the other warps evaluate
// them: a single warp does not keep up with the copies, four do (REPAIRED=1).
#include <warplens.cuh>

constexpr int CONSUMERS = REPAIRED ? 4 : 1, STAGES = 4, TILE = 2048;

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void wait_for(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(barrier), "r"(phase) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 1))
    activation_sum(const float* values, float* sums, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float stages[STAGES][TILE];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  __shared__ float parts[CONSUMERS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[stage])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[stage])), "n"(CONSUMERS));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warp == CONSUMERS) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("wait for room");
        wait_for(shared_address(&empty[stage]), (tile / STAGES & 1) ^ 1);
      }
      WL_REGION("issue copy");
      if (lane == 0) {
        const float* const from = values + (static_cast<long long>(tile) * gridDim.x + blockIdx.x) * TILE;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full[stage])),
                     "n"(TILE * 4) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(stages[stage])),
            "l"(from), "n"(TILE * 4), "r"(shared_address(&full[stage])) : "memory");
      }
      __syncwarp();
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("wait for tile");
        wait_for(shared_address(&full[stage]), tile / STAGES & 1);
      }
      {
        WL_REGION("evaluate");
#pragma unroll 4
        for (int i = warp * 32 + lane; i < TILE; i += 32 * CONSUMERS) {
          const float x = stages[stage][i];
          sum += x * __fdividef(1.0f, 1.0f + __expf(-1.702f * x)) + __expf(-x * x);
        }
        __syncwarp();
      }
      if (lane == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[stage])) : "memory");
    }
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) parts[warp] = sum;
  }
  WL_REGION("reduce");
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < CONSUMERS; ++i) total += parts[i];
    sums[blockIdx.x] = total;
  }
}
