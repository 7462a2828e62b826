// A filter of 64 taps that keeps one sample of 16. The block's samples lie in shared memory one after the other, or with
// a spare word after every 16 (REPAIRED=1).
#include <warplens.cuh>

constexpr int THREADS = 256, RATE = 16, TAPS = 64, SAMPLES = RATE * (THREADS - 1) + TAPS;

__device__ __forceinline__ int place(int sample) { return REPAIRED ? sample + sample / RATE : sample; }

extern "C" __global__ void __launch_bounds__(THREADS)
    polyphase(const float* in, const float* taps, float* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float window[SAMPLES + SAMPLES / RATE], weights[TAPS];
  {
    WL_REGION("window");
    const float* const from = in + static_cast<long long>(blockIdx.x) * RATE * THREADS;
    if (threadIdx.x < TAPS) weights[threadIdx.x] = taps[threadIdx.x];
#pragma unroll 8
    for (int i = threadIdx.x; i < SAMPLES; i += THREADS) window[place(i)] = from[i];
    __syncthreads();
  }
  WL_REGION("filter");
  float sum = 0;
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) sum += weights[tap] * window[place(RATE * threadIdx.x + tap)];
  out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
