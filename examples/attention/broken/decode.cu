// A decode step: one query per head against all its keys and values, which is memory bound. In `uncoalesced`, neighbouring
// lanes read keys that are a row apart; in `decode`, they read neighbouring addresses.
// -DHEAD=64 or 128, -DELEMENT=half_t or bfloat_t. Grid: heads; block: 256; shared memory: the scores (length floats) and
// one row of floats per group of lanes that read a row together.
#include <warplens.cuh>

#include "element.cuh"

namespace broken {

constexpr int DECODERS = 256;

template <class T, int Head, bool Coalesced>
__device__ void decode_attention(const T* q, const T* k, const T* v, T* out, int length, float scale, wl::Buffer prof) {
  constexpr int Lanes = Head / 8, Groups = DECODERS / Lanes;  // lanes that read a row together, 16 bytes each
  wl::Kernel kernel(prof);
  DYNAMIC_SHARED(float, weights);
  float* const sums = weights + length;
  __shared__ float part[DECODERS / 32];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, column = thread % Lanes * 8, group = thread / Lanes;
  const long long head = static_cast<long long>(blockIdx.x) * length * Head;
  const T* const query = q + static_cast<long long>(blockIdx.x) * Head;
  struct alignas(16) Eight {
    T of[8];
  };
  {
    WL_REGION("qk");
    if constexpr (Coalesced) {
      const Eight mine = *reinterpret_cast<const Eight*>(query + column);
      UNROLL_4
      for (int first = 0; first < length; first += Groups) {
        const int key = smaller(first + group, length - 1);
        const Eight row = *reinterpret_cast<const Eight*>(k + head + static_cast<long long>(key) * Head + column);
        float sum = 0;
        UNROLL
        for (int i = 0; i < 8; ++i) sum += to_float(mine.of[i]) * to_float(row.of[i]);
        sum = sum_of<Lanes>(sum);
        if (column == 0) weights[key] = sum * scale * LOG2E;
      }
    } else {
      for (int key = thread; key < length; key += DECODERS) {
        float sum = 0;
        for (int d = 0; d < Head; ++d) sum += to_float(query[d]) * to_float(k[head + static_cast<long long>(key) * Head + d]);
        weights[key] = sum * scale * LOG2E;
      }
    }
    __syncthreads();
  }
  float total = 0;
  {
    WL_REGION("softmax");
    float top = LOWEST;
    for (int key = thread; key < length; key += DECODERS) top = larger(top, weights[key]);
    top = largest_of(top);
    if (lane == 0) part[warp] = top;
    __syncthreads();
    for (int i = 0; i < DECODERS / 32; ++i) top = larger(top, part[i]);
    __syncthreads();
    for (int key = thread; key < length; key += DECODERS) total += weights[key] = power_of_two(weights[key] - top);
    total = sum_of(total);
    if (lane == 0) part[warp] = total;
    __syncthreads();
    total = 0;
    for (int i = 0; i < DECODERS / 32; ++i) total += part[i];
  }
  {
    WL_REGION("pv");
    float acc[8] = {};
    UNROLL_4
    for (int key = group; key < length; key += Groups) {
      const Eight row = *reinterpret_cast<const Eight*>(v + head + static_cast<long long>(key) * Head + column);
      UNROLL
      for (int i = 0; i < 8; ++i) acc[i] += weights[key] * to_float(row.of[i]);
    }
    for (int i = 0; i < 8; ++i) sums[group * Head + column + i] = acc[i];
    __syncthreads();
  }
  WL_REGION("store");
  if (thread >= Head) return;
  float sum = 0;
  for (int i = 0; i < Groups; ++i) sum += sums[i * Head + thread];
  out[static_cast<long long>(blockIdx.x) * Head + thread] = element<T>(sum / total);
}

}  // namespace broken

#ifdef ELEMENT
#define DECODE(name, coalesced)                                                                       \
  extern "C" __global__ void __launch_bounds__(broken::DECODERS)                                      \
      name(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, int length, float scale, \
           wl::Buffer prof) {                                                                         \
    broken::decode_attention<ELEMENT, HEAD, coalesced>(q, k, v, out, length, scale, prof);            \
  }
DECODE(decode, true)
DECODE(uncoalesced, false)
#endif
