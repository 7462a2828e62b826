// Each thread combines its own row of a small table in shared memory with a vector, again and again. REPAIRED=1 has one
// more column, so that the rows of a warp's lanes begin in different banks.
#include <warplens.cuh>

constexpr int THREADS = 128, LENGTH = 32, PITCH = REPAIRED ? 33 : 32;

extern "C" __global__ void __launch_bounds__(THREADS)
    row_dot(const float* tables, const float* vectors, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float table[THREADS * PITCH];
  {
    WL_REGION("load table");
    const float* const from = tables + static_cast<long long>(blockIdx.x) * THREADS * LENGTH;
    for (int i = threadIdx.x; i < THREADS * LENGTH; i += THREADS) table[i / LENGTH * PITCH + i % LENGTH] = from[i];
    __syncthreads();
  }
  float sum = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("combine");
#pragma unroll
    for (int i = 0; i < LENGTH; ++i) sum = fmaf(table[threadIdx.x * PITCH + i], vectors[round * LENGTH + i], sum);
  }
  WL_REGION("store");
  out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
