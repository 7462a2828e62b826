// Images from planes (NCHW) to interleaved channels (NHWC): each thread gathers for its place in the result, or a block
// turns a tile in shared memory (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    to_channels_last(const float* in, float* out, int channels, int pixels, wl::Buffer prof) {
  wl::Kernel k(prof);
#if REPAIRED
  __shared__ float tile[32][33];
  const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  const int pixel = blockIdx.x * 32, channel = blockIdx.y * 32;
  const long long image = static_cast<long long>(blockIdx.z) * channels * pixels;
  {
    WL_REGION("fetch");
#pragma unroll
    for (int i = ty; i < 32; i += 8) tile[i][tx] = in[image + (channel + i) * pixels + pixel + tx];
    __syncthreads();
  }
  WL_REGION("emit");
#pragma unroll
  for (int i = ty; i < 32; i += 8) out[image + (pixel + i) * channels + channel + tx] = tile[tx][i];
#else
  const long long image = static_cast<long long>(blockIdx.z) * channels * pixels;
  const int i = (blockIdx.y * gridDim.x + blockIdx.x) * 1024 + threadIdx.x;
  float value[4];
  {
    WL_REGION("fetch");
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int to = i + 256 * j;
      value[j] = in[image + to % channels * pixels + to / channels];
    }
  }
  WL_REGION("emit");
#pragma unroll
  for (int j = 0; j < 4; ++j) out[image + i + 256 * j] = value[j];
#endif
}
