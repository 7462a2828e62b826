// Squares of 16 by 16 values are turned in shared memory, many times over; the rows of a square have a spare column
// (REPAIRED=1).
#include <warplens.cuh>

constexpr int SIDE = 16, PITCH = REPAIRED ? SIDE + 1 : SIDE;

extern "C" __global__ void __launch_bounds__(256)
    turn_tiles(const float* in, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float tile[SIDE][PITCH];
  const int x = threadIdx.x, y = threadIdx.y, at = (blockIdx.x * SIDE + y) * SIDE + x;
  float value;
  {
    WL_REGION("in");
    value = in[at];
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("turn");
    tile[x][y] = value;
    __syncthreads();
    value = tile[y][x] + 1.0f;
    __syncthreads();
  }
  WL_REGION("back");
  out[at] = value;
}
