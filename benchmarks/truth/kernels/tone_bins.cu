// Energies of frequency bands by the Goertzel algorithm: a thread follows the eight tones of its band through pieces of
// 256 samples; nothing to repair.
#include <warplens.cuh>

constexpr int THREADS = 256, TONES = 8, SAMPLES = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    tone_bins(const float* signal, const float* turns, float* energies, int pieces, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float piece[SAMPLES];
  float turn[TONES], energy = 0;
#pragma unroll
  for (int i = 0; i < TONES; ++i) turn[i] = turns[i * THREADS + threadIdx.x];
#pragma unroll 1
  for (int number = 0; number < pieces; ++number) {
    {
      WL_REGION("piece");
      piece[threadIdx.x] = signal[(static_cast<long long>(blockIdx.x) * pieces + number) * SAMPLES + threadIdx.x];
      __syncthreads();
    }
    {
      WL_REGION("tones");
      float last[TONES] = {}, older[TONES] = {};
#pragma unroll 8
      for (int at = 0; at < SAMPLES; ++at) {
        const float sample = piece[at];
#pragma unroll
        for (int i = 0; i < TONES; ++i) {
          const float now = turn[i] * last[i] + (sample - older[i]);
          older[i] = last[i];
          last[i] = now;
        }
      }
#pragma unroll
      for (int i = 0; i < TONES; ++i)
        energy += last[i] * last[i] + older[i] * older[i] - turn[i] * last[i] * older[i];
    }
    __syncthreads();
  }
  energies[blockIdx.x * THREADS + threadIdx.x] = energy;
}
