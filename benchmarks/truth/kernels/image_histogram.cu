// Histogram of an image's grey values: every pixel counts in memory, or in a histogram of its block first (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    image_histogram(const uchar4* pixels, unsigned* bins, int quads, wl::Buffer prof) {
  wl::Kernel k(prof);
#if REPAIRED
  __shared__ unsigned counts[256];
  counts[threadIdx.x] = 0;
  __syncthreads();
  unsigned* const into = counts;
#else
  unsigned* const into = bins;
#endif
#pragma unroll 1
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
    uchar4 four;
    {
      WL_REGION("fetch");
      four = pixels[i];
    }
    WL_REGION("tally");
    atomicAdd(into + four.x, 1u);
    atomicAdd(into + four.y, 1u);
    atomicAdd(into + four.z, 1u);
    atomicAdd(into + four.w, 1u);
  }
#if REPAIRED
  __syncthreads();
  WL_REGION("flush");
  if (counts[threadIdx.x]) atomicAdd(bins + threadIdx.x, counts[threadIdx.x]);
#endif
}
