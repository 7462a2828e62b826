// Sums of long rows by few warps: one value at a time, or sixteen (REPAIRED=1).
#include <warplens.cuh>

constexpr int MANY = REPAIRED ? 16 : 1;

extern "C" __global__ void __launch_bounds__(128) single_steps(const float* in, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const float* const from = in + static_cast<long long>(blockIdx.x) * rounds * 128 + threadIdx.x;
  float sum = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round += MANY) {
    WL_REGION("sum up");
    float value[MANY];
#pragma unroll
    for (int i = 0; i < MANY; ++i) value[i] = from[(round + i) * 128];
#pragma unroll
    for (int i = 0; i < MANY; ++i) sum += value[i];
  }
  WL_REGION("keep");
  out[blockIdx.x * 128 + threadIdx.x] = sum;
}
