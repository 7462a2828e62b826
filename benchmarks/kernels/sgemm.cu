// C[m,n] = A[k,m]^T B[k,n], all fp32: 128x128x32 tiles, two cp.async stages, 8x8 results per thread. The textbook tiled
// GEMM. Four regions per k-step.
#include <warplens.cuh>

#define TILE 128
#define BK 32

__device__ __forceinline__ void copy16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

extern "C" __global__ void __launch_bounds__(256, 2)
gemm(const float* a, const float* b, float* c, int m, int n, int k, wl::Buffer prof) {
  wl::Kernel recording(prof);
  extern __shared__ __align__(16) float tiles[];  // [stage][a, b][BK][TILE]
  const unsigned thread = threadIdx.x, row = thread / 16 * 4, column = thread % 16 * 4;
  const unsigned row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(tiles));
  const auto fetch = [&](int step) {
    const unsigned at = shared + (step & 1) * (2 * BK * TILE * 4) + thread * 16;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned chunk = thread + i * 256, depth = step * BK + chunk / 32, along = chunk % 32 * 4;
      copy16(at + i * 4096, a + static_cast<size_t>(depth) * m + row0 + along);
      copy16(at + BK * TILE * 4 + i * 4096, b + static_cast<size_t>(depth) * n + column0 + along);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float sum[8][8] = {};
  const int steps = k / BK;
  fetch(0);
  for (int step = 0; step < steps; ++step) {
    {
      WL_REGION("wait");
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
    }
    {
      WL_REGION("fetch");
      if (step + 1 < steps) fetch(step + 1);
    }
    {
      WL_REGION("multiply");
      const float* at = tiles + (step & 1) * (2 * BK * TILE);
#pragma unroll 8
      for (int depth = 0; depth < BK; ++depth, at += TILE) {
        float x[8], y[8];
        *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(at + row);
        *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<const float4*>(at + 64 + row);
        *reinterpret_cast<float4*>(y) = *reinterpret_cast<const float4*>(at + BK * TILE + column);
        *reinterpret_cast<float4*>(y + 4) = *reinterpret_cast<const float4*>(at + BK * TILE + 64 + column);
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
      }
    }
    {
      WL_REGION("release");
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; j += 4)
      *reinterpret_cast<float4*>(c + static_cast<size_t>(row0 + row + i % 4 + i / 4 * 64) * n + column0 + column + j * 16) =
          make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
}
