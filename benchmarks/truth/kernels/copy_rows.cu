// A copy in steps of 16 bytes per thread, eight of them in flight, with as many blocks as fit.
#include <warplens.cuh>

constexpr int THREADS = 256, AT_ONCE = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    copy_rows(const float4* in, float4* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  const long long first = static_cast<long long>(blockIdx.x) * THREADS * AT_ONCE + threadIdx.x;
  float4 held[AT_ONCE];
  {
    WL_REGION("load");
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) held[i] = in[first + i * THREADS];
  }
  WL_REGION("store");
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) out[first + i * THREADS] = held[i];
}
