// Blocks with more and more work: the long ones start last, or first (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256) rising_work(const float* in, float* out, int scale, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int block = REPAIRED ? gridDim.x - 1 - blockIdx.x : blockIdx.x, at = block * 256 + threadIdx.x;
  const int rounds = 16 + static_cast<int>(static_cast<long long>(block) * block * scale / gridDim.x / gridDim.x);
  float value = in[at];
  {
    WL_REGION("rounds");
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
      for (int i = 0; i < 16; ++i) value = value * 0.5f + 1.0f;
  }
  WL_REGION("keep");
  out[at] = value;
}
