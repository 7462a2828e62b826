// Scales rows of 512 values by their root mean square, a row per block.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(128) rms_rows(const float4* x, float4* y, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[4];
  const int i = blockIdx.x * 128 + threadIdx.x;
  float4 v;
  float sum;
  {
    WL_REGION("fetch");
    v = x[i];
    sum = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  {
    WL_REGION("math");
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = rsqrtf((parts[0] + parts[1] + parts[2] + parts[3]) / 512 + 1e-6f);
  }
  WL_REGION("emit");
  y[i] = make_float4(v.x * sum, v.y * sum, v.z * sum, v.w * sum);
}
