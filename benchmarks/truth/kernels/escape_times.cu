// How many steps points of the plane take to escape, a thread per point: bound by arithmetic.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256) escape_times(int* out, int width, int most, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int at = blockIdx.x * 256 + threadIdx.x;
  const float re = (at % width) * (0.5f / width), im = (at / width) * (0.5f / width);
  int steps = 0;
  {
    WL_REGION("iterate");
    float x = 0, y = 0;
#pragma unroll 1
    for (; steps < most; steps += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float next = x * x - y * y + re;
        y = 2 * x * y + im;
        x = next;
      }
      if (x * x + y * y > 1e6f) break;
    }
  }
  WL_REGION("put");
  out[at] = steps;
}
