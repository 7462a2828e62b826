// Sums over tiles that one thread of the block brings by bulk copies while all wait: one stage, or four (REPAIRED=1).
#include <warplens.cuh>

constexpr int STAGES = REPAIRED ? 4 : 1, TILE = 1024;

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

__device__ __forceinline__ void bring(float* to, const float* from, unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "n"(TILE * 4) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
      "l"(from), "n"(TILE * 4), "r"(address(barrier)) : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
    bulk_sums(const float* values, float* sums, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float ring[STAGES][TILE];
  __shared__ unsigned long long full[STAGES];
  const float* const from = values + static_cast<long long>(blockIdx.x) * tiles * TILE;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full[stage])));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int stage = 0; stage < STAGES; ++stage) bring(ring[stage], from + stage * TILE, &full[stage]);
  }
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % STAGES;
    {
      WL_REGION("arrival");
      await(&full[stage], tile / STAGES & 1);
    }
    {
      WL_REGION("add");
#pragma unroll
      for (int i = 0; i < TILE / 256; ++i) sum += ring[stage][i * 256 + threadIdx.x];
      __syncthreads();
    }
    WL_REGION("next");
    if (threadIdx.x == 0 && tile + STAGES < tiles) bring(ring[stage], from + (tile + STAGES) * TILE, &full[stage]);
  }
  WL_REGION("put");
  sums[blockIdx.x * 256 + threadIdx.x] = sum;
}
