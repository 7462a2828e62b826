// Sums of squares, two blocks per SM over a long array, 16 values per thread in each step. REPAIRED=1 loads them all before
// it adds the first; otherwise each is added before the next is loaded.
#include <warplens.cuh>

constexpr int THREADS = 256, EACH = 16, AT_ONCE = REPAIRED ? EACH : 1;

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_squares(const float* values, float* sums, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int thread = blockIdx.x * THREADS + threadIdx.x, threads = gridDim.x * THREADS;
  float sum = 0;
#pragma unroll 1
  for (int first = 0; first < rounds; first += EACH) {
    WL_REGION("load and add");
#pragma unroll 1
    for (int round = first; round < first + EACH; round += AT_ONCE) {
      float loaded[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) loaded[i] = values[static_cast<long long>(round + i) * threads + thread];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) sum = fmaf(loaded[i], loaded[i], sum);
    }
  }
  WL_REGION("store");
  sums[thread] = sum;
}
