// C = A B^T in tiles of 64 x 64 through shared memory. The rows of a tile are 32 words apart, or 33 (REPAIRED=1).
#include <warplens.cuh>

constexpr int TILE = 64, DEPTH = 32, PITCH = REPAIRED ? DEPTH + 1 : DEPTH;

extern "C" __global__ void __launch_bounds__(256)
    gemm_nt(const float* __restrict__ a, const float* __restrict__ b, float* c, int n, int depth, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float as[TILE][PITCH], bs[TILE][PITCH];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
  float acc[4][4] = {};
#pragma unroll 1
  for (int k0 = 0; k0 < depth; k0 += DEPTH) {
    {
      WL_REGION("fetch");
#pragma unroll
      for (int i = 0; i < TILE / 8; ++i) {
        const int row = threadIdx.x / 32 + 8 * i, column = threadIdx.x % 32;
        as[row][column] = a[(m0 + row) * depth + k0 + column];
        bs[row][column] = b[(n0 + row) * depth + k0 + column];
      }
      __syncthreads();
    }
    WL_REGION("math");
#pragma unroll 8
    for (int kk = 0; kk < DEPTH; ++kk) {
      float x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = as[ty + 16 * i][kk], y[i] = bs[tx + 16 * i][kk];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
    }
    __syncthreads();
  }
  WL_REGION("epilogue");
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) c[(m0 + ty + 16 * i) * n + n0 + tx + 16 * j] = acc[i][j];
}
