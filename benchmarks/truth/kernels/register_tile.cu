// C = A B with 8 x 8 results per thread in registers. Asking for four blocks per SM leaves 64 registers per thread, so the
// results spill to local memory; REPAIRED=1 asks for two blocks per SM.
#include <warplens.cuh>

constexpr int THREADS = 256, TILE = 128, DEPTH = 32, EACH = 8, BLOCKS = REPAIRED ? 2 : 4;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    register_tile(const float* a, const float* b, float* c, int n, int depth, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float tile_a[DEPTH][TILE + 4], tile_b[DEPTH][TILE];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float results[EACH][EACH] = {};
#pragma unroll 1
  for (int start = 0; start < depth; start += DEPTH) {
    {
      WL_REGION("load");
      for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        tile_a[i % DEPTH][i / DEPTH] = a[static_cast<long long>(blockIdx.y * TILE + i / DEPTH) * depth + start + i % DEPTH];
        tile_b[i / TILE][i % TILE] = b[static_cast<long long>(start + i / TILE) * n + blockIdx.x * TILE + i % TILE];
      }
      __syncthreads();
    }
    WL_REGION("multiply");
#pragma unroll
    for (int step = 0; step < DEPTH; ++step) {
      float left[EACH], right[EACH];
#pragma unroll
      for (int i = 0; i < EACH; ++i) left[i] = tile_a[step][y + 16 * i], right[i] = tile_b[step][x + 16 * i];
#pragma unroll
      for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j) results[i][j] = fmaf(left[i], right[j], results[i][j]);
    }
    __syncthreads();
  }
  WL_REGION("store");
#pragma unroll
  for (int i = 0; i < EACH; ++i)
#pragma unroll
    for (int j = 0; j < EACH; ++j)
      c[static_cast<long long>(blockIdx.y * TILE + y + 16 * i) * n + blockIdx.x * TILE + x + 16 * j] = results[i][j];
}
