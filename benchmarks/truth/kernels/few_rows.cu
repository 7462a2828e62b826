// Sums of squares of 16 long rows: a block per row, or 32 per row that add to its sum (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    few_rows(const float4* rows, float* sums, int quads, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[8];
  float sum = 0;
#pragma unroll 1
  for (int i = blockIdx.y * 256 + threadIdx.x; i < quads; i += gridDim.y * 256) {
    float4 one;
    {
      WL_REGION("get");
      one = rows[static_cast<long long>(blockIdx.x) * quads + i];
    }
    WL_REGION("square");
    sum += one.x * one.x + one.y * one.y + one.z * one.z + one.w * one.w;
  }
  WL_REGION("finish");
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < 8; ++i) total += parts[i];
    atomicAdd(&sums[blockIdx.x], total);
  }
}
