// Collects the values above a limit in a list of the block: under a lock, or with a counter (REPAIRED=1).
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(512)
    shared_list(const float* x, float limit, int rounds, float* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float list[1024];
  __shared__ int lock, count;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) lock = count = 0;
  __syncthreads();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    float value;
    {
      WL_REGION("read");
      value = x[(blockIdx.x * rounds + round) * 512 + threadIdx.x];
    }
    WL_REGION("append");
    const unsigned chosen = __ballot_sync(~0u, value > limit);
    const int before = __popc(chosen & ((1u << lane) - 1)), many = __popc(chosen);
#if REPAIRED
    int at = 0;
    if (lane == 0 && many) at = atomicAdd(&count, many);
    at = __shfl_sync(~0u, at, 0);
    if (value > limit) list[(at + before) % 1024] = value;
#else
    if (many) {
      if (lane == 0)
        while (atomicCAS(&lock, 0, 1)) __nanosleep(20);
      __syncwarp();
      __threadfence_block();
      const int at = *static_cast<volatile int*>(&count);
      if (value > limit) list[(at + before) % 1024] = value;
      __syncwarp();
      if (lane == 0) {
        *static_cast<volatile int*>(&count) = at + many;
        __threadfence_block();
        atomicExch(&lock, 0);
      }
    }
#endif
    __syncwarp();
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = count;
  if (list[threadIdx.x] < 0) out[blockIdx.x] = -1;
}
