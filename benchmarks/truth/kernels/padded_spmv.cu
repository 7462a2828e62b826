// A sparse matrix times a vector, a thread for each row. All rows are padded to the same width and stored one after the
// other, or with their first entries side by side, then their second ones, and so on (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    padded_spmv(const float* values, const int* columns, const float* x, float* y, int rows, int width,
                wl::Buffer prof) {
  wl::Kernel k(prof);
  const int row = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  {
    WL_REGION("row");
#pragma unroll 4
    for (int entry = 0; entry < width; ++entry) {
      const int at = REPAIRED ? entry * rows + row : row * width + entry;
      sum += values[at] * x[columns[at]];
    }
  }
  WL_REGION("result");
  y[row] = sum;
}
