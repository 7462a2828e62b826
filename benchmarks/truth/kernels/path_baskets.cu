// Monte Carlo: payoffs of an option on a basket of 24 correlated assets, a path for each thread. The compiler may use
// so many registers that eight blocks fit on an SM, or two (REPAIRED=1).
#include <warplens.cuh>

constexpr int ASSETS = 24;

extern "C" __global__ void __launch_bounds__(256, REPAIRED ? 2 : 8)
    path_baskets(const float* factor, float* payoffs, int steps, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float mix[ASSETS][ASSETS];
  for (int i = threadIdx.x; i < ASSETS * ASSETS; i += 256) mix[i / ASSETS][i % ASSETS] = factor[i];
  __syncthreads();
  const unsigned path = blockIdx.x * 256 + threadIdx.x;
  float price[ASSETS];
#pragma unroll
  for (int i = 0; i < ASSETS; ++i) price[i] = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    float draw[ASSETS];
    {
      WL_REGION("draw");
#pragma unroll
      for (int i = 0; i < ASSETS; ++i) {
        unsigned bits = (path * steps + step) * ASSETS + i;
        bits = (bits ^ (bits >> 16)) * 0x7feb352du;
        bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
        draw[i] = static_cast<float>(static_cast<int>(__dp4a(bits, 0x01010101u, 0u)) - 510) * (1.0f / 147.8f);
      }
    }
    WL_REGION("step");
#pragma unroll
    for (int i = 0; i < ASSETS; ++i) {
      float moved = 0;
#pragma unroll
      for (int j = 0; j <= i; ++j) moved += mix[i][j] * draw[j];
      price[i] += 0.05f * moved - 0.00125f;
    }
  }
  WL_REGION("payoff");
  float sum = 0;
#pragma unroll
  for (int i = 0; i < ASSETS; ++i) sum += __expf(price[i]);
  payoffs[path] = fmaxf(sum * (1.0f / ASSETS) - 1.0f, 0.0f);
}
