// Sums over tiles that one warp copies asynchronously for four others: 4 bytes per lane and copy, or 16 (REPAIRED=1).
#include <warplens.cuh>

constexpr int CONSUMERS = 4, STAGES = 4, TILE = 1024, WIDTH = REPAIRED ? 4 : 1;

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
    narrow_copies(const float* values, float* sums, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float ring[STAGES][TILE];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(address(&full[stage])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&empty[stage])), "n"(CONSUMERS));
    }
  }
  __syncthreads();
  if (warp == CONSUMERS) {
    const float* const from = values + static_cast<long long>(blockIdx.x) * tiles * TILE;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("slot");
        await(&empty[stage], (tile / STAGES & 1) ^ 1);
      }
      WL_REGION("copy in");
#pragma unroll 8
      for (int i = WIDTH * lane; i < TILE; i += WIDTH * 32) {
        const unsigned to = address(&ring[stage][i]);
#if REPAIRED
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + tile * TILE + i) : "memory");
#else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from + tile * TILE + i) : "memory");
#endif
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&full[stage])) : "memory");
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("data");
        await(&full[stage], tile / STAGES & 1);
      }
      {
        WL_REGION("add up");
#pragma unroll
        for (int i = warp * 32 + lane; i < TILE; i += 32 * CONSUMERS) sum += ring[stage][i];
        __syncwarp();
      }
      if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&empty[stage])) : "memory");
    }
    sums[(blockIdx.x * CONSUMERS + warp) * 32 + lane] = sum;
  }
}
