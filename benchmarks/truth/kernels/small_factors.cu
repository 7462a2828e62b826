// LU factors of many matrices of 32 x 32, a warp for each and a lane for each row. The rows are 32 words apart in shared
// memory, or 33 (REPAIRED=1).
#include <warplens.cuh>

constexpr int N = 32, PITCH = REPAIRED ? N + 1 : N, WARPS = 4;

extern "C" __global__ void __launch_bounds__(32 * WARPS) small_factors(const float* in, float* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float matrices[WARPS][N * PITCH];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long offset = (static_cast<long long>(blockIdx.x) * WARPS + warp) * N * N;
  float* const a = matrices[warp];
  {
    WL_REGION("load");
#pragma unroll 8
    for (int row = 0; row < N; ++row) a[row * PITCH + lane] = in[offset + row * N + lane];
    __syncwarp();
  }
#pragma unroll 1
  for (int pivot = 0; pivot < N - 1; ++pivot) {
    WL_REGION("eliminate");
    if (lane > pivot) {
      const float factor = a[lane * PITCH + pivot] / a[pivot * PITCH + pivot];
      a[lane * PITCH + pivot] = factor;
      for (int column = pivot + 1; column < N; ++column) a[lane * PITCH + column] -= factor * a[pivot * PITCH + column];
    }
    __syncwarp();
  }
  WL_REGION("store");
#pragma unroll 8
  for (int row = 0; row < N; ++row) out[offset + row * N + lane] = a[row * PITCH + lane];
}
