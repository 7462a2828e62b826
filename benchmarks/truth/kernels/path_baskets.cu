// Monte Carlo: payoffs of an option on a basket of 40 assets that follow the market, a path for each thread. The compiler
// may use so many registers that six blocks fit on an SM, or two (REPAIRED=1).
#include <warplens.cuh>

constexpr int ASSETS = 40;

extern "C" __global__ void __launch_bounds__(256, REPAIRED ? 2 : 6)
    path_baskets(const float* betas, float* payoffs, int steps, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float beta[ASSETS];
  if (threadIdx.x < ASSETS) beta[threadIdx.x] = betas[threadIdx.x];
  __syncthreads();
  const unsigned path = blockIdx.x * 256 + threadIdx.x;
  float price[ASSETS];
#pragma unroll
  for (int i = 0; i < ASSETS; ++i) price[i] = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    float draw[ASSETS], market = 0;
    {
      WL_REGION("draw");
#pragma unroll
      for (int i = 0; i < ASSETS; ++i) {
        unsigned bits = (path * steps + step) * ASSETS + i;
        bits = (bits ^ (bits >> 16)) * 0x7feb352du;
        bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
        draw[i] = static_cast<float>(static_cast<int>(__dp4a(bits, 0x01010101u, 0u)) - 510) * (1.0f / 147.8f);
        market += draw[i];
      }
    }
    WL_REGION("step");
#pragma unroll
    for (int i = 0; i < ASSETS; ++i) price[i] += 0.05f * (beta[i] * market + draw[i]) - 0.00125f;
  }
  WL_REGION("payoff");
  float sum = 0;
#pragma unroll
  for (int i = 0; i < ASSETS; ++i) sum += __expf(price[i]);
  payoffs[path] = fmaxf(sum * (1.0f / ASSETS) - 1.0f, 0.0f);
}
