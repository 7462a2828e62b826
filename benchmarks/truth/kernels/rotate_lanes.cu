// Values move from lane to lane through shared memory, each warp in its own row: the block waits after each step, or the
// warp (REPAIRED=1). Warps have steps of different length.
#include <warplens.cuh>

#if REPAIRED
#define MEET() __syncwarp()
#else
#define MEET() __syncthreads()
#endif

extern "C" __global__ void __launch_bounds__(256) rotate_lanes(const float* in, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float room[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = blockIdx.x * 256 + threadIdx.x;
  float value = in[at];
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("step");
    const int more = (round + warp) % 4 == 0 ? 64 : 4;
#pragma unroll 1
    for (int i = 0; i < more; ++i) value = value * 0.5f + 1.0f;
    room[warp][lane] = value;
    MEET();
    value = room[warp][(lane + 1) % 32];
    MEET();
  }
  WL_REGION("keep");
  out[at] = value;
}
