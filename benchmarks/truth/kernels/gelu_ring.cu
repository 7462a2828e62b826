// Sums of GELU over tiles that a warp brings by bulk copies and four warps evaluate: with constants of double
// precision, or of single precision (REPAIRED=1).
#include <warplens.cuh>

#if REPAIRED
typedef float Real;
#else
typedef double Real;
#endif

constexpr int WORKERS = 4, STAGES = 4, TILE = 1024;

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

__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978846f * (x + 0.044715f * x * x * x)));
}

__device__ __forceinline__ double gelu(double x) {
  return 0.5 * x * (1.0 + tanh(0.7978846 * (x + 0.044715 * x * x * x)));
}

extern "C" __global__ void __launch_bounds__(32 * (WORKERS + 1))
    gelu_ring(const float* in, float* sums, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ alignas(128) float ring[STAGES][TILE];
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
  const float* const from = in + static_cast<long long>(blockIdx.x) * tiles * TILE;
  if (warp == WORKERS) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("free");
        wait_for(&drained[stage], (tile / STAGES & 1) ^ 1);
      }
      WL_REGION("bring");
      if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(&filled[stage])),
                     "n"(TILE * 4) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_at(ring[stage])),
            "l"(from + tile * TILE), "n"(TILE * 4), "r"(shared_at(&filled[stage])) : "memory");
      }
      __syncwarp();
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      {
        WL_REGION("ready");
        wait_for(&filled[stage], tile / STAGES & 1);
      }
      {
        WL_REGION("gelu");
        for (int i = threadIdx.x; i < TILE; i += 32 * WORKERS) sum += static_cast<float>(gelu(Real(ring[stage][i])));
        __syncwarp();
      }
      if (lane == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(&drained[stage])) : "memory");
    }
    sums[blockIdx.x * 32 * WORKERS + threadIdx.x] = sum;
  }
}
