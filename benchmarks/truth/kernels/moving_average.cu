// Exponential moving averages along the time of many series, a thread each: one time step is read at a time, or eight
// (REPAIRED=1).
#include <warplens.cuh>

constexpr int STEPS = REPAIRED ? 8 : 1;

extern "C" __global__ void __launch_bounds__(256)
    moving_average(const float* in, float* out, int series, int length, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int mine = blockIdx.x * 256 + threadIdx.x;
  const float* from = in + mine;
  float* to = out + mine;
  const long long ahead = series;
  float average = 0;
#pragma unroll 1
  for (int time = 0; time < length; time += STEPS, from += STEPS * ahead, to += STEPS * ahead) {
    float seen[STEPS];
    {
      WL_REGION("read");
#pragma unroll
      for (int i = 0; i < STEPS; ++i) seen[i] = from[i * ahead];
    }
    WL_REGION("blend");
#pragma unroll
    for (int i = 0; i < STEPS; ++i) to[i * ahead] = average = 0.75f * average + 0.25f * seen[i];
  }
}
