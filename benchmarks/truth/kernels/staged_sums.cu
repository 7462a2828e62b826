// Sums over tiles that one warp brings to shared memory for four others: word by word through its registers, or by one bulk
// copy per tile (REPAIRED=1).
#include <warplens.cuh>

constexpr int CONSUMERS = 4, STAGES = 4, TILE = 1024;

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void wait_for(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(barrier), "r"(phase) : "memory");
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 1))
    staged_sums(const float* values, float* sums, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float stages[STAGES][TILE];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
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
      const float* const from = values + (static_cast<long long>(tile) * gridDim.x + blockIdx.x) * TILE;
      {
        WL_REGION("wait empty");
        wait_for(shared_address(&empty[stage]), (tile / STAGES & 1) ^ 1);
      }
      WL_REGION("fill");
#if REPAIRED
      if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full[stage])),
                     "n"(TILE * 4) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(stages[stage])),
            "l"(from), "n"(TILE * 4), "r"(shared_address(&full[stage])) : "memory");
      }
#else
#pragma unroll 4
      for (int i = lane; i < TILE; i += 32) stages[stage][i] = from[i];
      __syncwarp();
      if (lane == 0) arrive(shared_address(&full[stage]));
#endif
      __syncwarp();
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("wait full");
        wait_for(shared_address(&full[stage]), tile / STAGES & 1);
      }
      {
        WL_REGION("sum");
#pragma unroll
        for (int i = warp * 32 + lane; i < TILE; i += 32 * CONSUMERS) sum += stages[stage][i];
        __syncwarp();
      }
      if (lane == 0) arrive(shared_address(&empty[stage]));
    }
    sums[(blockIdx.x * CONSUMERS + warp) * 32 + lane] = sum;
  }
}
