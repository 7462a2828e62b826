// Softmax of rows of 64 values: a thread per row, or a warp per row (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256) thread_rows(const float* x, float* y, int rows, wl::Buffer prof) {
  wl::Kernel k(prof);
#if REPAIRED
  const int lane = threadIdx.x % 32;
  for (int row = blockIdx.x * 256 + threadIdx.x / 32 * 32, last = row + 32; row < last; row += 4) {
    float a[4], b[4];
    {
      WL_REGION("part_a");
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = x[(row + i) * 64 + lane], b[i] = x[(row + i) * 64 + lane + 32];
    }
    WL_REGION("part_b");
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = (a[i] = __expf(a[i])) + (b[i] = __expf(b[i]));
      for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      y[(row + i) * 64 + lane] = a[i] / sum;
      y[(row + i) * 64 + lane + 32] = b[i] / sum;
    }
  }
#else
  const int row = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  {
    WL_REGION("part_a");
    for (int i = 0; i < 64; ++i) sum += __expf(x[row * 64 + i]);
  }
  WL_REGION("part_b");
  for (int i = 0; i < 64; ++i) y[row * 64 + i] = __expf(x[row * 64 + i]) / sum;
#endif
}
