// The 32 nearest points of each query, a warp per query: a block reads points in tiles, and each warp inserts those that
// are near enough in a list of its own. After each 32 points the block waits, or only the warp (REPAIRED=1).
#include <warplens.cuh>

constexpr int WARPS = 8, TILE = 1024;

__device__ __forceinline__ void step_done() {
#if REPAIRED
  __syncwarp();
#else
  __syncthreads();
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    nearest_points(const float2* points, const float2* queries, float* nearest, int count, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float2 tile[TILE];
  __shared__ float lists[WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, number = blockIdx.x * WARPS + warp;
  const float2 query = queries[number];
  float* const list = lists[warp];
  list[lane] = 1e30f;
#pragma unroll 1
  for (int base = 0; base < count; base += TILE) {
    {
      WL_REGION("tile");
      __syncthreads();
      for (int i = threadIdx.x; i < TILE; i += 32 * WARPS) tile[i] = points[base + i];
      __syncthreads();
    }
#pragma unroll 1
    for (int at = lane; at < TILE; at += 32) {
      {
        WL_REGION("insert");
        const float dx = tile[at].x - query.x, dy = tile[at].y - query.y, distance = dx * dx + dy * dy;
        unsigned nearer = __ballot_sync(~0u, distance < list[31]);
        while (nearer) {
          const float one = __shfl_sync(~0u, distance, __ffs(nearer) - 1);
          nearer &= nearer - 1;
          const float mine = list[lane], before = lane ? list[lane - 1] : 0.0f;
          __syncwarp();
          list[lane] = mine <= one ? mine : fmaxf(before, one);
          __syncwarp();
        }
      }
      WL_REGION("sync");
      step_done();
    }
  }
  WL_REGION("result");
  nearest[number * 32 + lane] = list[lane];
}
