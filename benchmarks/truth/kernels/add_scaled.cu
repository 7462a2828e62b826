// y += a x over long arrays, 16 bytes per thread and step: bound by memory, nothing to repair.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256) add_scaled(const float4* x, float4* y, float a, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_REGION("all");
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    const float4 p = x[i];
    float4 q = y[i];
    q.x = fmaf(a, p.x, q.x), q.y = fmaf(a, p.y, q.y), q.z = fmaf(a, p.z, q.z), q.w = fmaf(a, p.w, q.w);
    y[i] = q;
  }
}
