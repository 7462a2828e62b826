// Prices of options by binomial trees of 32 leaves, which a thread holds in its registers; there is nothing to repair.
#include <warplens.cuh>

constexpr int LEAVES = 32;

extern "C" __global__ void __launch_bounds__(256)
    binomial_prices(const float* spots, float* prices, int trees, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int option = blockIdx.x * 256 + threadIdx.x;
  const float spot = spots[option];
  float price = 0;
#pragma unroll 1
  for (int tree = 0; tree < trees; ++tree) {
    WL_REGION("tree");
    const float up = 0.4f + 0.01f * tree, down = 1.0f - up;
    float value[LEAVES];
#pragma unroll
    for (int leaf = 0; leaf < LEAVES; ++leaf) value[leaf] = fmaxf(spot + (leaf - LEAVES / 2), 0.0f);
#pragma unroll
    for (int level = LEAVES - 1; level; --level)
#pragma unroll
      for (int node = 0; node < level; ++node) value[node] = down * value[node] + up * value[node + 1];
    price += value[0];
  }
  WL_REGION("put");
  prices[option] = price;
}
