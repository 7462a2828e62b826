// Rays through a volume of 8-bit densities, from the front until hardly any light gets through: a thread reads one voxel
// of its ray at a time, or eight (REPAIRED=1).
#include <warplens.cuh>

constexpr int AHEAD = REPAIRED ? 8 : 1;

extern "C" __global__ void __launch_bounds__(256)
    march_rays(const unsigned char* volume, float* image, int rays, int depth, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int ray = blockIdx.x * 256 + threadIdx.x;
  const unsigned char* at = volume + ray;
  float light = 0, through = 1;
#pragma unroll 1
  for (int z = 0; z < depth && through > 0.01f; z += AHEAD, at += AHEAD * static_cast<long long>(rays)) {
    unsigned char density[AHEAD];
    {
      WL_REGION("sample");
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) density[i] = at[i * static_cast<long long>(rays)];
    }
    WL_REGION("blend");
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const float opacity = density[i] * (1.0f / 1024);
      light += through * opacity * (1.0f + 0.5f * opacity);
      through *= 1.0f - opacity;
    }
  }
  WL_REGION("pixel");
  image[ray] = light;
}
