// Energies of the pairs of particles within each cell of a grid, eight cells at a time: a warp for each cell, or the
// pieces of all cells dealt to the warps (REPAIRED=1).
#include <warplens.cuh>

constexpr int CELLS = 8, MOST = 256;

extern "C" __global__ void __launch_bounds__(32 * CELLS)
    cell_pairs(const float2* places, const int* first, float* energies, int groups, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float2 near[CELLS * MOST];
  __shared__ int starts[CELLS + 1];
  __shared__ float sums[CELLS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int group = blockIdx.x; group < groups; group += gridDim.x) {
    const int base = first[group * CELLS];
    {
      WL_REGION("bring");
      const int count = first[(group + 1) * CELLS] - base;
      if (threadIdx.x <= CELLS) starts[threadIdx.x] = first[group * CELLS + threadIdx.x] - base;
      if (threadIdx.x < CELLS) sums[threadIdx.x] = 0;
      for (int i = threadIdx.x; i < count; i += 32 * CELLS) near[i] = places[base + i];
      __syncthreads();
    }
    {
      WL_REGION("pairs");
      int piece = 0;
#pragma unroll 1
      for (int cell = 0; cell < CELLS; ++cell) {
        const int from = starts[cell], to = starts[cell + 1];
#pragma unroll 1
        for (int i = from + lane; i - lane < to; i += 32, ++piece) {
          if ((REPAIRED ? piece % CELLS : cell) != warp) continue;
          const float2 mine = near[min(i, to - 1)];
          float sum = 0;
          for (int j = from; j < to; ++j) {
            const float dx = mine.x - near[j].x, dy = mine.y - near[j].y;
            sum += fmaxf(4.0f - dx * dx - dy * dy, 0.0f);
          }
          if (i >= to) sum = 0;
          for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
          if (lane == 0) atomicAdd(&sums[cell], sum);
        }
      }
    }
    WL_REGION("settle");
    __syncthreads();
    if (threadIdx.x < CELLS) energies[group * CELLS + threadIdx.x] = sums[threadIdx.x];
    __syncthreads();
  }
}
