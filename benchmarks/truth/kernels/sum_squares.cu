// Sums of squares, two blocks per SM over a long array. REPAIRED=1 keeps 16 loads per thread in flight instead of one.
#include <warplens.cuh>

constexpr int THREADS = 256, AT_ONCE = REPAIRED ? 16 : 1;

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_squares(const float* values, float* sums, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int thread = blockIdx.x * THREADS + threadIdx.x, threads = gridDim.x * THREADS;
  float sum = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round += AT_ONCE) {
    float loaded[AT_ONCE];
    {
      WL_REGION("load");
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) loaded[i] = values[static_cast<long long>(round + i) * threads + thread];
    }
    WL_REGION("add");
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) sum = fmaf(loaded[i], loaded[i], sum);
  }
  WL_REGION("store");
  sums[thread] = sum;
}
