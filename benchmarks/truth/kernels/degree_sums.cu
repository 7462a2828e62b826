// Sums over the edges of a graph's vertices, a warp per vertex and a barrier per group of vertices. `order` says which
// vertex comes when.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    degree_sums(const int* first, const int* order, const float* weight, float* out, int groups, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int group = 0; group < groups; ++group) {
    const int base = (group * gridDim.x + blockIdx.x) * 8;
    {
      WL_REGION("visit");
      const int vertex = order[base + warp], last = first[vertex + 1];
      float sum = 0;
      for (int edge = first[vertex] + lane; edge < last; edge += 32) sum += weight[edge];
      for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane == 0) parts[warp] = sum;
    }
    {
      WL_REGION("meet");
      __syncthreads();
    }
    WL_REGION("emit");
    if (threadIdx.x < 8) out[order[base + threadIdx.x]] = parts[threadIdx.x];
    __syncthreads();
  }
}
