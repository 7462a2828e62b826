// Forces of many bodies on many others, in tiles through shared memory: bound by arithmetic, nothing to repair.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(128)
    attraction(const float4* bodies, const float4* sources, float4* forces, int count, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float4 tile[128];
  const float4 body = bodies[blockIdx.x * 128 + threadIdx.x];
  float x = 0, y = 0, z = 0;
#pragma unroll 1
  for (int first = 0; first < count; first += 128) {
    {
      WL_REGION("fetch");
      tile[threadIdx.x] = sources[first + threadIdx.x];
      __syncthreads();
    }
    WL_REGION("math");
#pragma unroll 16
    for (int i = 0; i < 128; ++i) {
      const float4 other = tile[i];
      const float dx = other.x - body.x, dy = other.y - body.y, dz = other.z - body.z;
      const float square = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
      const float near = rsqrtf(square), pull = other.w * near * near * near;
      x = fmaf(dx, pull, x), y = fmaf(dy, pull, y), z = fmaf(dz, pull, z);
    }
    __syncthreads();
  }
  WL_REGION("emit");
  forces[blockIdx.x * 128 + threadIdx.x] = make_float4(x, y, z, 0);
}
