// A matrix is flipped tile by tile, and each tile is smoothed along its columns: rows of 32 words, or of 33 (REPAIRED=1).
#include <warplens.cuh>

constexpr int SIDE = 32, PITCH = REPAIRED ? SIDE + 1 : SIDE;

extern "C" __global__ void __launch_bounds__(256)
    flip_tiles(const float* in, float* out, int side, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float tile[SIDE][PITCH];
  const int x = threadIdx.x, y = threadIdx.y;
  {
    WL_REGION("in");
    for (int i = 0; i < SIDE; i += 8) tile[y + i][x] = in[(blockIdx.y * SIDE + y + i) * side + blockIdx.x * SIDE + x];
    __syncthreads();
  }
  float sums[4] = {};
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("columns");
    for (int i = 0; i < 4; ++i) sums[i] += tile[x][(y + 8 * i + round) % SIDE];
  }
  WL_REGION("out");
  for (int i = 0; i < 4; ++i) out[(blockIdx.x * SIDE + y + 8 * i) * side + blockIdx.y * SIDE + x] = sums[i];
}
