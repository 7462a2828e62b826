// Cross sections of neutrons, as Monte Carlo transport codes look them up: a block keeps the table of energies and three
// reactions in its shared memory, and each thread interpolates at random energies. Blocks take units in turn.
#include <warplens.cuh>

constexpr int THREADS = 1024, POINTS = 8192, REACTIONS = 3;

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_sections(const float4* table, float* out, int units, int lookups, wl::Buffer prof) {
  wl::Kernel k(prof);
  extern __shared__ float4 kept[];
  {
    WL_REGION("table");
    for (int i = threadIdx.x; i < (REACTIONS + 1) * POINTS / 4; i += THREADS) kept[i] = table[i];
    __syncthreads();
  }
  const float* const energies = reinterpret_cast<const float*>(kept);
#pragma unroll 1
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    WL_REGION("look up");
    unsigned state = (unit * THREADS + threadIdx.x) * 2654435761u;
    float sum = 0;
#pragma unroll 1
    for (int lookup = 0; lookup < lookups; ++lookup) {
      state = state * 1664525u + 1013904223u;
      const float energy = (state >> 8) * (1.0f / (1 << 24));
      int low = 0;
#pragma unroll
      for (int step = POINTS / 2; step; step /= 2)
        if (energies[low + step] <= energy) low += step;
      const int next = min(low + 1, POINTS - 1);
      const float part = next == low ? 0.0f : (energy - energies[low]) / (energies[next] - energies[low]);
#pragma unroll
      for (int reaction = 1; reaction <= REACTIONS; ++reaction) {
        const float before = energies[reaction * POINTS + low], after = energies[reaction * POINTS + next];
        sum += before + part * (after - before);
      }
    }
    out[unit * THREADS + threadIdx.x] = sum;
  }
}
