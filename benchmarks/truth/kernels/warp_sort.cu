// Each warp sorts batches of 64 keys in its part of shared memory. After each exchange the block waits, or only the warp
// (REPAIRED=1).
#include <warplens.cuh>

#if REPAIRED
#define SYNC() __syncwarp()
#else
#define SYNC() __syncthreads()
#endif

extern "C" __global__ void __launch_bounds__(512) warp_sort(const int* in, int* out, int batches, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int room[16][64];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int* const keys = room[warp];
#pragma unroll 1
  for (int batch = 0; batch < batches; ++batch) {
    const int at = ((blockIdx.x * batches + batch) * 16 + warp) * 64;
    {
      WL_REGION("fetch");
      keys[lane] = in[at + lane];
      keys[lane + 32] = in[at + lane + 32];
      SYNC();
    }
    {
      WL_REGION("order");
#pragma unroll 1
      for (int size = 2; size <= 64; size *= 2)
#pragma unroll 1
        for (int stride = size / 2; stride; stride /= 2) {
          const int low = 2 * lane - (lane & (stride - 1)), high = low + stride;
          const int x = keys[low], y = keys[high];
          if ((x > y) == !(low & size)) keys[low] = y, keys[high] = x;
          SYNC();
        }
    }
    WL_REGION("emit");
    out[at + lane] = keys[lane];
    out[at + lane + 32] = keys[lane + 32];
  }
}
