// Sums of table rows that a list of indices names, a warp per list: one row after the other, or eight at a time
// (REPAIRED=1).
#include <warplens.cuh>

constexpr int WIDTH = 128, AHEAD = REPAIRED ? 8 : 1;

extern "C" __global__ void __launch_bounds__(128)
    embedding_bag(const float* table, const int* indices, float* sums, int length, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int lane = threadIdx.x % 32, bag = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int* const mine = indices + bag * length;
  float4 sum = {0, 0, 0, 0};
#pragma unroll 1
  for (int first = 0; first < length; first += AHEAD) {
    float4 row[AHEAD];
    {
      WL_REGION("rows");
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        row[i] = reinterpret_cast<const float4*>(table + static_cast<long long>(mine[first + i]) * WIDTH)[lane];
    }
    WL_REGION("add");
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      sum.x += row[i].x, sum.y += row[i].y, sum.z += row[i].z, sum.w += row[i].w;
    }
  }
  WL_REGION("put");
  reinterpret_cast<float4*>(sums + bag * WIDTH)[lane] = sum;
}
