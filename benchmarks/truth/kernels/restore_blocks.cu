// Removes the noise of JPEG's blocks of 8 x 8 pixels: cosine transform, shrink the coefficients, transform back, limit to
// grey values, over and over, with a thread per block of pixels. The compiler may use 32 registers, or 128 (REPAIRED=1).
#include <warplens.cuh>

constexpr float C1 = 0.49039264f, C2 = 0.46193977f, C3 = 0.41573481f, C4 = 0.35355339f, C5 = 0.27778512f,
                C6 = 0.19134172f, C7 = 0.09754516f;

template <int STEP>
__device__ __forceinline__ void forward(float* x) {
  const float s0 = x[0] + x[7 * STEP], s1 = x[STEP] + x[6 * STEP], s2 = x[2 * STEP] + x[5 * STEP];
  const float s3 = x[3 * STEP] + x[4 * STEP], d0 = x[0] - x[7 * STEP], d1 = x[STEP] - x[6 * STEP];
  const float d2 = x[2 * STEP] - x[5 * STEP], d3 = x[3 * STEP] - x[4 * STEP];
  x[0] = C4 * (s0 + s3 + s1 + s2);
  x[4 * STEP] = C4 * (s0 + s3 - s1 - s2);
  x[2 * STEP] = C2 * (s0 - s3) + C6 * (s1 - s2);
  x[6 * STEP] = C6 * (s0 - s3) - C2 * (s1 - s2);
  x[STEP] = C1 * d0 + C3 * d1 + C5 * d2 + C7 * d3;
  x[3 * STEP] = C3 * d0 - C7 * d1 - C1 * d2 - C5 * d3;
  x[5 * STEP] = C5 * d0 - C1 * d1 + C7 * d2 + C3 * d3;
  x[7 * STEP] = C7 * d0 - C5 * d1 + C3 * d2 - C1 * d3;
}

template <int STEP>
__device__ __forceinline__ void backward(float* x) {
  const float a = C4 * (x[0] + x[4 * STEP]), b = C4 * (x[0] - x[4 * STEP]);
  const float c = C2 * x[2 * STEP] + C6 * x[6 * STEP], d = C6 * x[2 * STEP] - C2 * x[6 * STEP];
  const float x1 = x[STEP], x3 = x[3 * STEP], x5 = x[5 * STEP], x7 = x[7 * STEP];
  const float d0 = C1 * x1 + C3 * x3 + C5 * x5 + C7 * x7, d1 = C3 * x1 - C7 * x3 - C1 * x5 - C5 * x7;
  const float d2 = C5 * x1 - C1 * x3 + C7 * x5 + C3 * x7, d3 = C7 * x1 - C5 * x3 + C3 * x5 - C1 * x7;
  x[0] = a + c + d0, x[7 * STEP] = a + c - d0;
  x[STEP] = b + d + d1, x[6 * STEP] = b + d - d1;
  x[2 * STEP] = b - d + d2, x[5 * STEP] = b - d - d2;
  x[3 * STEP] = a - c + d3, x[4 * STEP] = a - c - d3;
}

extern "C" __global__ void __launch_bounds__(128, REPAIRED ? 4 : 16)
    restore_blocks(const float* in, float* out, int count, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int block = blockIdx.x * 128 + threadIdx.x;
  float pixels[64];
  {
    WL_REGION("load");
#pragma unroll
    for (int i = 0; i < 64; ++i) pixels[i] = in[i * static_cast<long long>(count) + block];
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("cosines");
#pragma unroll
      for (int i = 0; i < 8; ++i) forward<1>(pixels + 8 * i);
#pragma unroll
      for (int i = 0; i < 8; ++i) forward<8>(pixels + i);
#pragma unroll
      for (int i = 0; i < 64; ++i) pixels[i] = copysignf(fmaxf(fabsf(pixels[i]) - 0.5f, 0.0f), pixels[i]);
    }
    WL_REGION("back");
#pragma unroll
    for (int i = 0; i < 8; ++i) backward<8>(pixels + i);
#pragma unroll
    for (int i = 0; i < 8; ++i) backward<1>(pixels + 8 * i);
#pragma unroll
    for (int i = 0; i < 64; ++i) pixels[i] = fminf(fmaxf(pixels[i], 0.0f), 255.0f);
  }
  WL_REGION("store");
#pragma unroll
  for (int i = 0; i < 64; ++i) out[i * static_cast<long long>(count) + block] = pixels[i];
}
