// Aperture photometry: the fluxes of the 128 stars of a field, relative to its first. The catalogue lists a field's stars
// from the widest to the narrowest; a warp takes 16 that follow each other, or every eighth (REPAIRED=1).
#include <warplens.cuh>

constexpr int STARS = 128, WARPS = 8, EACH = STARS / WARPS;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    star_fluxes(const float* image, const int4* catalogue, float* fluxes, int width, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float found[STARS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int turn = 0; turn < EACH; ++turn) {
    WL_REGION("aperture");
    const int star = REPAIRED ? turn * WARPS + warp : warp * EACH + turn;
    const int4 one = catalogue[blockIdx.x * STARS + star];
    const int radius = one.z;
    float sum = 0;
    for (int dy = -radius; dy <= radius; ++dy) {
      const float* const row = image + (one.y + dy) * width + one.x;
      for (int dx = lane - radius; dx <= radius; dx += 32)
        if (dx * dx + dy * dy <= radius * radius) sum += row[dx];
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) found[star] = sum;
  }
  {
    WL_REGION("gather");
    __syncthreads();
  }
  WL_REGION("write");
  if (threadIdx.x < STARS) fluxes[blockIdx.x * STARS + threadIdx.x] = found[threadIdx.x] / found[0];
}
