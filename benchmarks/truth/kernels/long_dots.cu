// Dots of the rows of a matrix with a vector, a thread per row: stored row by row, or column by column (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    long_dots(const float* a, const float* v, float* out, int rows, int columns, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int row = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  {
    WL_REGION("dots");
#pragma unroll 4
    for (int i = 0; i < columns; ++i) {
#if REPAIRED
      sum += a[i * rows + row] * v[i];
#else
      sum += a[row * columns + i] * v[i];
#endif
    }
  }
  WL_REGION("keep");
  out[row] = sum;
}
