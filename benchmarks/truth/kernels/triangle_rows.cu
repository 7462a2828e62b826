// A lower triangular matrix times a vector, a block per row: the short rows first, or the long ones (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(128)
    triangle_rows(const float* matrix, const float* x, float* y, int size, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[4];
  const int row = REPAIRED ? size - 1 - blockIdx.x : blockIdx.x;
  float sum = 0;
  {
    WL_REGION("row");
#pragma unroll 1
    for (int repeat = 0; repeat < 1 + row / (size - size / 64); ++repeat)
      for (int column = threadIdx.x; column <= row; column += 128)
        sum += matrix[static_cast<long long>(row) * size + column] * x[column];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  }
  WL_REGION("end");
  __syncthreads();
  if (threadIdx.x == 0) y[row] = parts[0] + parts[1] + parts[2] + parts[3];
}
