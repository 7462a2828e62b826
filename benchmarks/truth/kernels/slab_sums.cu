// Evaluates a series for slabs of work, one block with much shared memory per SM: a slab per block, or the units of all
// slabs in equal parts.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(512) slab_sums(float* out, int units, int each, wl::Buffer prof) {
  wl::Kernel k(prof);
  extern __shared__ float room[];
  const int begin = blockIdx.x * each, end = min(begin + each, units);
#pragma unroll 1
  for (int unit = begin; unit < end; ++unit) {
    float sum = 0;
    {
      WL_REGION("math");
      const float x = 1e-3f * (threadIdx.x + unit);
#pragma unroll 8
      for (int i = 1; i < 257; ++i) sum = fmaf(sum, 0.75f, __sinf(x * i));
      room[threadIdx.x] = sum;
    }
    WL_REGION("emit");
    out[unit * 512 + threadIdx.x] = room[threadIdx.x];
  }
}
