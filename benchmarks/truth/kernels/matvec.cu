// y = A x, one row per thread. REPAIRED=1 reads A stored by columns, so that the lanes of a warp read neighbours.
#include <warplens.cuh>

constexpr int COLUMNS = 64, CHUNK = 16, THREADS = 256;

#if REPAIRED
#define ELEMENT(row, column) (static_cast<long long>(column) * rows + (row))
#else
#define ELEMENT(row, column) (static_cast<long long>(row) * COLUMNS + (column))
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec(const float* a, const float* x, float* y, int rows, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int row = blockIdx.x * THREADS + threadIdx.x;
  float sum = 0;
#pragma unroll 1
  for (int start = 0; start < COLUMNS; start += CHUNK) {
    float part[CHUNK];
    {
      WL_REGION("load");
#pragma unroll
      for (int j = 0; j < CHUNK; ++j) part[j] = a[ELEMENT(row, start + j)];
    }
    WL_REGION("multiply");
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) sum = fmaf(part[j], x[start + j], sum);
  }
  WL_REGION("store");
  y[row] = sum;
}
