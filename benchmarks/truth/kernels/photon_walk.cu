// Photons scatter and give what they counted to their neighbour; a warp scatters often in one round of eight, which
// its draw says. The block meets before and after that, or only the warp does (REPAIRED=1).
#include <warplens.cuh>

__device__ __forceinline__ void meet() {
#if REPAIRED
  __syncwarp();
#else
  __syncthreads();
#endif
}

extern "C" __global__ void __launch_bounds__(256) photon_walk(unsigned* counts, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned given[256];
  const unsigned photon = blockIdx.x * 256 + threadIdx.x, warp = photon / 32;
  unsigned state = photon * 2654435761u + 12345u, seen = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("scatter");
      unsigned draw = (warp * rounds + round / 8) * 2654435761u;
      draw = (draw ^ draw >> 15) * 2246822519u;
      const int events = static_cast<int>(draw >> 29) == round % 8 ? 64 : 6;
#pragma unroll 1
      for (int event = 0; event < events; ++event) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        seen += state >> 31;
      }
    }
    WL_REGION("share");
    given[threadIdx.x] = seen;
    meet();
    state += given[threadIdx.x ^ 1];
    meet();
  }
  WL_REGION("put");
  counts[photon] = seen;
}
