// A three-point average along rows; a block takes `rows` of them, one after the other.
#include <warplens.cuh>

constexpr int THREADS = 256, EACH = 16, COLUMNS = THREADS * EACH;

extern "C" __global__ void __launch_bounds__(THREADS)
    smooth_rows(const float* in, float* out, int rows, wl::Buffer prof) {
  wl::Kernel k(prof);
#pragma unroll 1
  for (int i = 0; i < rows; ++i) {
    const long long row = (static_cast<long long>(blockIdx.x) * rows + i) * COLUMNS;
    float left[EACH], middle[EACH], right[EACH];
    {
      WL_REGION("load");
#pragma unroll
      for (int j = 0; j < EACH; ++j) {
        const int column = threadIdx.x + j * THREADS;
        left[j] = in[row + max(column - 1, 0)];
        middle[j] = in[row + column];
        right[j] = in[row + min(column + 1, COLUMNS - 1)];
      }
    }
    WL_REGION("store");
#pragma unroll
    for (int j = 0; j < EACH; ++j)
      out[row + threadIdx.x + j * THREADS] = 0.25f * left[j] + 0.5f * middle[j] + 0.25f * right[j];
  }
}
