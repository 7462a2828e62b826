// The gradient of a bias: each block sums its rows and adds the sums to the result, one block after the other by
// tickets, or atomically (REPAIRED=1). Both counters go on from launch to launch.
#include <warplens.cuh>

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    bias_gradient(const float4* in, float4* total, unsigned* counters, int rows, wl::Buffer prof) {
  wl::Kernel k(prof);
  float4 sum = make_float4(0, 0, 0, 0);
  {
    WL_REGION("rows");
    const float4* from = in + static_cast<long long>(blockIdx.x) * rows * THREADS + threadIdx.x;
#pragma unroll 8
    for (int row = 0; row < rows; ++row, from += THREADS) {
      const float4 one = *from;
      sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
  }
#if REPAIRED
  WL_REGION("merge");
  float* const at = reinterpret_cast<float*>(total + threadIdx.x);
  atomicAdd(at, sum.x), atomicAdd(at + 1, sum.y), atomicAdd(at + 2, sum.z), atomicAdd(at + 3, sum.w);
#else
  unsigned ticket = 0;
  {
    WL_REGION("ticket");
    if (threadIdx.x == 0) {
      ticket = atomicAdd(&counters[0], 1);
      while (*reinterpret_cast<volatile unsigned*>(&counters[1]) != ticket) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  WL_REGION("merge");
  float4 before = __ldcg(total + threadIdx.x);
  before.x += sum.x, before.y += sum.y, before.z += sum.z, before.w += sum.w;
  __stcg(total + threadIdx.x, before);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *reinterpret_cast<volatile unsigned*>(&counters[1]) = ticket + 1;
#endif
}
