// Sums of squares of long rows through a ring of stages that cp.async fills. Waiting for all copies leaves one in flight;
// waiting for the oldest one only (REPAIRED=1) leaves three.
#include <warplens.cuh>

constexpr int STAGES = 4, LEFT = REPAIRED ? STAGES - 2 : 0;

extern "C" __global__ void __launch_bounds__(256)
    row_energy(const float4* x, float* out, int rows, int tiles, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float4 ring[STAGES][256];
  const int mine = blockIdx.x < rows ? (rows - blockIdx.x - 1) / gridDim.x + 1 : 0, count = mine * tiles;
  auto issue = [&](int step) {
    if (step < count) {
      const int row = blockIdx.x + step / tiles * gridDim.x;
      const float4* const from = x + (static_cast<long long>(row) * tiles + step % tiles) * 256 + threadIdx.x;
      const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&ring[step % STAGES][threadIdx.x]));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) issue(step);
  float sum = 0;
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
    {
      WL_REGION("step 1");
      asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
    }
    {
      WL_REGION("step 2");
      const float4 v = ring[step % STAGES][threadIdx.x];
      sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
      if (step % tiles == tiles - 1) {
        for (int down = 16; down; down /= 2) sum += __shfl_down_sync(~0u, sum, down);
        const int row = blockIdx.x + step / tiles * gridDim.x;
        if (threadIdx.x % 32 == 0) out[row * 8 + threadIdx.x / 32] = sum;
        sum = 0;
      }
    }
    WL_REGION("step 3");
    issue(step + STAGES - 1);
  }
}
