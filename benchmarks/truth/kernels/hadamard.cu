// Walsh-Hadamard transforms of 512 complex numbers, three passes of eight points, over and over: the numbers lie in
// shared memory in their order, or swizzled (REPAIRED=1).
#include <warplens.cuh>

constexpr int POINTS = 512, THREADS = 64;

__device__ __forceinline__ int place(int i) {
#if REPAIRED
  return i ^ ((i >> 4 & 7) | (i >> 6 & 1) << 3);
#else
  return i;
#endif
}

__device__ __forceinline__ void eight(float2 (&v)[8]) {
#pragma unroll
  for (int half = 1; half < 8; half *= 2)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (!(i & half)) {
        const float2 a = v[i], b = v[i + half];
        v[i] = make_float2(a.x + b.x, a.y + b.y);
        v[i + half] = make_float2(a.x - b.x, a.y - b.y);
      }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    hadamard(const float2* in, float2* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float2 line[POINTS];
  const int t = threadIdx.x, base = blockIdx.x * POINTS;
  float2 v[8];
  auto keep = [&](int first, int step) {
#pragma unroll
    for (int i = 0; i < 8; ++i) line[place(first + i * step)] = v[i];
    __syncthreads();
  };
  auto take = [&](int first, int step) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = line[place(first + i * step)];
  };
  {
    WL_REGION("begin");
#pragma unroll
    for (int i = 0; i < 8; ++i) line[place(t + 64 * i)] = in[base + t + 64 * i];
    __syncthreads();
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("pass 1");
      take(8 * t, 1);
      eight(v);
      keep(8 * t, 1);
    }
    {
      WL_REGION("pass 2");
      const int first = t / 8 * 64 + t % 8;
      take(first, 8);
      eight(v);
      keep(first, 8);
    }
    WL_REGION("pass 3");
    take(t, 64);
    eight(v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = make_float2(v[i].x * 0.0625f, v[i].y * 0.0625f);
    keep(t, 64);
  }
  WL_REGION("end");
#pragma unroll
  for (int i = 0; i < 8; ++i) out[base + t + 64 * i] = v[i];
}
