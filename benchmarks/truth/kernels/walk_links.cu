// Each thread follows links through a large table. The block's stack in shared memory is sized for the longest possible
// path, which leaves one block per SM, or for the paths there are (REPAIRED=1).
#include <warplens.cuh>

constexpr int THREADS = 128, HOPS = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    walk_links(const int* links, int* ends, int mask, wl::Buffer prof) {
  wl::Kernel k(prof);
  extern __shared__ int stack[];
  const unsigned thread = blockIdx.x * THREADS + threadIdx.x;
  int at = thread * 2654435761u & mask;
#pragma unroll 1
  for (int hop = 0; hop < HOPS; ++hop) {
    WL_REGION("hop");
    stack[hop * THREADS + threadIdx.x] = at;
    at = links[at];
    if (at < 0) break;
  }
  WL_REGION("store");
  int sum = at;
  for (int hop = 0; hop < HOPS; ++hop) sum ^= stack[hop * THREADS + threadIdx.x];
  ends[thread] = sum;
}
