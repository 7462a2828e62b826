// The number of words before the end of each text: a warp per text, eight texts of a block that report together. The texts
// come in the order that `ids` says.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    word_lengths(const int* ids, const int* begins, const unsigned char* text, int* out, int groups, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int found[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int group = 0; group < groups; ++group) {
    const int first = (group * gridDim.x + blockIdx.x) * 8;
    {
      WL_REGION("scan");
      const int mine = ids[first + warp], begin = begins[mine], length = begins[mine + 1] - begin;
      int count = 0;
      for (int i = lane; i < length; i += 32) count += text[begin + i] == 32;
      for (int step = 16; step; step /= 2) count += __shfl_xor_sync(~0u, count, step);
      if (lane == 0) found[warp] = count;
    }
    {
      WL_REGION("all");
      __syncthreads();
    }
    WL_REGION("report");
    if (threadIdx.x < 8) out[ids[first + threadIdx.x]] = found[threadIdx.x];
    __syncthreads();
  }
}
