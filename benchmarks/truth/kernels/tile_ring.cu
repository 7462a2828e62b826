// Polynomials over tiles that a producer warp fetches by bulk copies: into a single stage, or a ring of four (REPAIRED=1).
#include <warplens.cuh>

constexpr int CONSUMERS = 4, STAGES = REPAIRED ? 4 : 1, TILE = 512;

__device__ __forceinline__ unsigned address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

__device__ __forceinline__ void await(unsigned long long* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred P1;\n"
      "LAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra DONE;\n"
      "bra LAB_WAIT;\n"
      "DONE:\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 1))
    tile_ring(const float* values, float* sums, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float ring[STAGES][TILE];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full[stage])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&empty[stage])), "n"(CONSUMERS));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  int stage = 0;
  unsigned parity = 0;
  auto advance = [&] {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  };
  if (warp == CONSUMERS) {
    const float* from = values + static_cast<long long>(blockIdx.x) * tiles * TILE;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, advance(), from += TILE) {
      {
        WL_REGION("acquire");
        await(&empty[stage], parity ^ 1);
      }
      WL_REGION("fetch");
      if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full[stage])),
                     "n"(TILE * 4) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                address(ring[stage])),
            "l"(from), "n"(TILE * 4), "r"(address(&full[stage])) : "memory");
      }
      __syncwarp();
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, advance()) {
      {
        WL_REGION("receive");
        await(&full[stage], parity);
      }
      {
        WL_REGION("math");
#pragma unroll
        for (int i = warp * 32 + lane; i < TILE; i += 32 * CONSUMERS) {
          const float x = ring[stage][i];
          sum += fmaf(fmaf(fmaf(x, 0.25f, 0.5f), x, -1.0f), x, 2.0f);
        }
        __syncwarp();
      }
      if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&empty[stage])) : "memory");
    }
    sums[(blockIdx.x * CONSUMERS + warp) * 32 + lane] = sum;
  }
}
