// Running sums along rows. A warp moves tiles of 32 x 32 through shared memory and each lane walks along one row of the
// tile. REPAIRED=1 pads the tile's rows, so that the lanes read from 32 banks.
#include <warplens.cuh>

constexpr int WARPS = 4, TILE = 32, PITCH = REPAIRED ? 33 : 32;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    row_scan(const float* in, float* out, int columns, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float tiles[WARPS][TILE * PITCH];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* const tile = tiles[warp];
  const long long first = (static_cast<long long>(blockIdx.x) * WARPS + warp) * TILE * columns;
  float carry = 0;
#pragma unroll 1
  for (int start = 0; start < columns; start += TILE) {
    {
      WL_REGION("load tile");
#pragma unroll
      for (int row = 0; row < TILE; ++row) tile[row * PITCH + lane] = in[first + row * columns + start + lane];
      __syncwarp();
    }
    {
      WL_REGION("scan");
#pragma unroll
      for (int column = 0; column < TILE; ++column) {
        carry += tile[lane * PITCH + column];
        tile[lane * PITCH + column] = carry;
      }
      __syncwarp();
    }
    WL_REGION("store tile");
#pragma unroll
    for (int row = 0; row < TILE; ++row) out[first + row * columns + start + lane] = tile[row * PITCH + lane];
    __syncwarp();
  }
}
