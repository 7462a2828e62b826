// A sparse matrix times a vector, 64 rows per block; the results of a block are scaled by its largest. The rows are sorted
// by length within a block: dealt in turn (REPAIRED=1) they give each warp as much work, in runs of eight they do not.
#include <warplens.cuh>

constexpr int WARPS = 8, ROWS = 64;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    sparse_rows(const int* starts, const int* columns, const float* values, const float* x, float* y, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float sums[ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int turn = 0; turn < ROWS / WARPS; ++turn) {
    const int row = REPAIRED ? turn * WARPS + warp : warp * (ROWS / WARPS) + turn;
    WL_REGION("row");
    const int end = starts[blockIdx.x * ROWS + row + 1];
    float sum = 0;
#pragma unroll 4
    for (int i = starts[blockIdx.x * ROWS + row] + lane; i < end; i += 32) sum = fmaf(values[i], x[columns[i]], sum);
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) sums[row] = sum;
  }
  {
    WL_REGION("wait for rows");
    __syncthreads();
  }
  WL_REGION("scale");
  float largest = 1;
  for (int row = 0; row < ROWS; ++row) largest = fmaxf(largest, sums[row]);
  if (threadIdx.x < ROWS) y[blockIdx.x * ROWS + threadIdx.x] = sums[threadIdx.x] / largest;
}
