// Polynomials of degree 256 at 16 points per thread. A block of 1,024 threads fills an SM and works through `units` parts
// of the points: with few large blocks the last wave is almost empty, with many small blocks it is short.
#include <warplens.cuh>

constexpr int THREADS = 1024, POINTS = 16, DEGREE = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    polynomial(const float* x, float* y, const float* coefficients, int units, wl::Buffer prof) {
  wl::Kernel k(prof);
#pragma unroll 1
  for (int unit = blockIdx.x * units; unit < (blockIdx.x + 1) * units; ++unit) {
    const long long first = static_cast<long long>(unit) * THREADS * POINTS + threadIdx.x;
    float at[POINTS], value[POINTS];
    {
      WL_REGION("load");
#pragma unroll
      for (int i = 0; i < POINTS; ++i) at[i] = x[first + i * THREADS], value[i] = 0;
    }
    {
      WL_REGION("evaluate");
#pragma unroll 4
      for (int degree = 0; degree < DEGREE; ++degree) {
        const float coefficient = coefficients[degree];
#pragma unroll
        for (int i = 0; i < POINTS; ++i) value[i] = fmaf(value[i], at[i], coefficient);
      }
    }
    WL_REGION("store");
#pragma unroll
    for (int i = 0; i < POINTS; ++i) y[first + i * THREADS] = value[i];
  }
}
