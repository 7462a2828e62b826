// The strength of an image's edges by Sobel's operator: neighbouring threads take neighbouring rows of the image, or
// columns (REPAIRED=1).
#include <warplens.cuh>

constexpr int STEPS = 4;

extern "C" __global__ void __launch_bounds__(256)
    sobel_edges(const float* image, float* edges, int width, int height, wl::Buffer prof) {
  wl::Kernel k(prof);
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) {
    const int along = blockIdx.x * 32 + threadIdx.x, across = (blockIdx.y * STEPS + step) * 8 + threadIdx.y;
    const int x = REPAIRED ? along : across, y = REPAIRED ? across : along;
    float near[3][3];
    {
      WL_REGION("pixels");
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        const float* const row = image + min(max(y + i - 1, 0), height - 1) * width;
#pragma unroll
        for (int j = 0; j < 3; ++j) near[i][j] = row[min(max(x + j - 1, 0), width - 1)];
      }
    }
    WL_REGION("edge");
    const float right = near[0][2] + 2 * near[1][2] + near[2][2] - near[0][0] - 2 * near[1][0] - near[2][0];
    const float down = near[2][0] + 2 * near[2][1] + near[2][2] - near[0][0] - 2 * near[0][1] - near[0][2];
    edges[y * width + x] = fabsf(right) + fabsf(down);
  }
}
