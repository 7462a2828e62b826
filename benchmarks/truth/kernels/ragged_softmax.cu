// Softmax of rows of different lengths, a row per warp. `order` says which row a warp takes.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    ragged_softmax(const float* x, float* y, const int* starts, const int* order, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int row = order[blockIdx.x * 8 + threadIdx.x / 32], lane = threadIdx.x % 32;
  const int first = starts[row], last = starts[row + 1];
  float top = -1e30f, sum = 0;
  {
    WL_REGION("part_a");
#pragma unroll 4
    for (int i = first + lane; i < last; i += 32) top = fmaxf(top, x[i]);
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  }
  {
    WL_REGION("part_b");
#pragma unroll 4
    for (int i = first + lane; i < last; i += 32) sum += __expf(x[i] - top);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
  WL_REGION("part_c");
#pragma unroll 4
  for (int i = first + lane; i < last; i += 32) y[i] = __expf(x[i] - top) / sum;
}
