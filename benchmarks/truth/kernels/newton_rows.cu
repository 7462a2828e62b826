// Cube roots by as many steps as each warp needs, round after round: all warps of the block wait for one another, or
// each goes on by itself (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    newton_rows(const float* in, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int at = blockIdx.x * 256 + threadIdx.x, warp = threadIdx.x / 32;
  const float value = in[at];
  float root = 1.0f;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("steps");
      const int steps = (warp + round) % 8 == 0 ? 96 : 12;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) root = (2.0f * root + value / (root * root)) / 3.0f;
    }
#if !REPAIRED
    WL_REGION("meet");
    __syncthreads();
#endif
  }
  WL_REGION("put");
  out[at] = root;
}
