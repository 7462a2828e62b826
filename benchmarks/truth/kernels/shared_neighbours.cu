// How many neighbours two vertices share, a warp for each pair: the neighbours of one lie in the warp's own part of
// shared memory, where those of the other are looked up. The block waits for the part, or the warp (REPAIRED=1).
#include <warplens.cuh>

constexpr int WARPS = 8, MOST = 512;

__device__ __forceinline__ void settle() {
#if REPAIRED
  __syncwarp();
#else
  __syncthreads();
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    shared_neighbours(const int* first, const int* ends, const int2* pairs, int* common, int rounds,
                      wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int near[WARPS][MOST];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int number = (blockIdx.x * rounds + round) * WARPS + warp;
    const int2 pair = pairs[number];
    const int begin = first[pair.x], size = first[pair.x + 1] - begin;
    {
      WL_REGION("stage");
      for (int i = lane; i < size; i += 32) near[warp][i] = ends[begin + i];
      settle();
    }
    WL_REGION("intersect");
    const int end = first[pair.y + 1];
    int found = 0;
#pragma unroll 1
    for (int i = first[pair.y] + lane; i < end; i += 32) {
      const int vertex = ends[i];
      int low = 0, high = size;
#pragma unroll 1
      while (low < high) {
        const int middle = (low + high) / 2;
        if (near[warp][middle] < vertex) low = middle + 1;
        else high = middle;
      }
      found += low < size && near[warp][low] == vertex;
    }
    found = __reduce_add_sync(~0u, found);
    if (lane == 0) common[number] = found;
    settle();
  }
}
