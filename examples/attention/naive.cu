// Attention as in the formula: one block per query, every score written to memory and read back.
// -DHEAD=64 or 128, -DELEMENT=float, half_t or bfloat_t. Grid: (length, heads); block: HEAD.
#include <warplens.cuh>

#include "element.cuh"

template <class T, int Head>
__device__ void naive_attention(const T* q, const T* k, const T* v, T* out, float* scores, int length, float scale,
                                int causal, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  constexpr int Warps = Head / 32;
  __shared__ float part[Warps];
  const int row = blockIdx.x, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const long long head = static_cast<long long>(blockIdx.y) * length * Head;
  const int keys = causal ? row + 1 : length;
  float* const mine = scores + (static_cast<long long>(blockIdx.y) * length + row) * length;
  {
    WL_REGION("qk");
    for (int key = warp; key < keys; key += Warps) {
      float sum = 0;
      for (int d = lane; d < Head; d += 32) {
        sum += to_float(q[head + static_cast<long long>(row) * Head + d]) * to_float(k[head + static_cast<long long>(key) * Head + d]);
      }
      sum = sum_of(sum);
      if (lane == 0) mine[key] = sum * scale;
    }
    __syncthreads();
  }
  float total = 0;
  {
    WL_REGION("softmax");
    float top = LOWEST;
    for (int key = thread; key < keys; key += Head) top = larger(top, mine[key]);
    top = largest_of(top);
    if (lane == 0) part[warp] = top;
    __syncthreads();
    for (int i = 0; i < Warps; ++i) top = larger(top, part[i]);
    __syncthreads();
    for (int key = thread; key < keys; key += Head) {
      const float weight = power_of_two((mine[key] - top) * LOG2E);
      mine[key] = weight;
      total += weight;
    }
    total = sum_of(total);
    if (lane == 0) part[warp] = total;
    __syncthreads();
    total = 0;
    for (int i = 0; i < Warps; ++i) total += part[i];
  }
  float sum = 0;
  {
    WL_REGION("pv");
    for (int key = 0; key < keys; ++key) sum += mine[key] * to_float(v[head + static_cast<long long>(key) * Head + thread]);
  }
  WL_REGION("store");
  out[head + static_cast<long long>(row) * Head + thread] = element<T>(sum / total);
}

#ifdef ELEMENT
extern "C" __global__ void __launch_bounds__(HEAD)
    naive(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, float* scores, int length, float scale,
          int causal, wl::Buffer prof) {
  naive_attention<ELEMENT, HEAD>(q, k, v, out, scores, length, scale, causal, prof);
}
#endif
