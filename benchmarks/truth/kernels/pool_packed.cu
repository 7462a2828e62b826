// Sums of 4-bit vectors with a scale per 32 values, as an index of embeddings pools them: warps unpack vectors to a ring
// in shared memory, and four others add them up. One warp unpacks, or four in turn (REPAIRED=1).
#include <warplens.cuh>

constexpr int UNPACKERS = REPAIRED ? 4 : 1, ADDERS = 4, STAGES = 4, WIDTH = 2048, WORDS = WIDTH / 8;

__device__ __forceinline__ unsigned place(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

__device__ __forceinline__ void arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place(barrier)) : "memory");
}

__device__ __forceinline__ void wait(unsigned long long* barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(place(barrier)), "r"(parity) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * (UNPACKERS + ADDERS))
    pool_packed(const unsigned* packed, const float* scales, float* out, int vectors, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float ring[STAGES][WIDTH];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[stage])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place(&empty[stage])), "n"(ADDERS));
    }
  }
  __syncthreads();
  if (warp >= ADDERS) {
#pragma unroll 1
    for (int vector = warp - ADDERS; vector < vectors; vector += UNPACKERS) {
      const int stage = vector % STAGES;
      const long long number = static_cast<long long>(blockIdx.x) * vectors + vector;
      {
        WL_REGION("wait for slot");
        wait(&empty[stage], (vector / STAGES & 1) ^ 1);
      }
      WL_REGION("unpack");
#pragma unroll 8
      for (int at = lane; at < WORDS; at += 32) {
        const unsigned word = packed[number * WORDS + at];
        const float scale = scales[number * (WORDS / 4) + at / 4];
#pragma unroll
        for (int i = 0; i < 8; ++i)
          ring[stage][i * WORDS + at] = scale * (static_cast<int>(word >> 4 * i & 15) - 8);
      }
      __syncwarp();
      if (lane == 0) arrive(&full[stage]);
    }
  } else {
    float sums[WIDTH / (32 * ADDERS)] = {};
#pragma unroll 1
    for (int vector = 0; vector < vectors; ++vector) {
      const int stage = vector % STAGES;
      {
        WL_REGION("wait for vector");
        wait(&full[stage], vector / STAGES & 1);
      }
      WL_REGION("add");
#pragma unroll
      for (int i = 0; i < WIDTH / (32 * ADDERS); ++i) sums[i] += ring[stage][i * 32 * ADDERS + threadIdx.x];
      __syncwarp();
      if (lane == 0) arrive(&empty[stage]);
    }
#pragma unroll
    for (int i = 0; i < WIDTH / (32 * ADDERS); ++i) {
      const int at = i * 32 * ADDERS + threadIdx.x;
      out[static_cast<long long>(blockIdx.x) * WIDTH + at % WORDS * 8 + at / WORDS] = sums[i];
    }
  }
}
