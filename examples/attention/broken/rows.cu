// One query per lane, `Staged` keys and values at a time in shared memory. `rows` is correct; the others have one problem:
//
//   low_occupancy  blocks of one warp stage 128 KB instead of 8
//   serialised     blocks run one after the other
//   overflowing    the softmax does not subtract the maximum
//
// -DHEAD=64 or 128, -DELEMENT=half_t or bfloat_t. Grid: (tiles of 32 queries, heads); block: 32; shared memory:
// 2 * Staged rows.
#include <warplens.cuh>

#include "element.cuh"

namespace broken {

constexpr int ROWS = 32;

template <class T, int Head, int Staged, bool Ordered, bool Safe>
__device__ void rows_attention(const T* q, const T* k, const T* v, T* out, unsigned* turn, int length, float scale,
                               wl::Buffer prof) {
  wl::Kernel kernel(prof);
  DYNAMIC_SHARED(T, keys);
  T* const values = keys + Staged * Head;
  const int row = smaller(blockIdx.x * ROWS + threadIdx.x, length - 1);  // lanes past the end repeat the last query
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  const long long head = static_cast<long long>(blockIdx.y) * length * Head;
  if constexpr (Ordered) {
    WL_REGION("wait turn");
    while (read_now(turn) != block) {
    }
  }
  float query[Head], acc[Head] = {}, top = Safe ? LOWEST : 0.0f, total = 0;
  {
    WL_REGION("load q");
    UNROLL
    for (int d = 0; d < Head; ++d) query[d] = to_float(q[head + static_cast<long long>(row) * Head + d]) * scale * LOG2E;
  }
  for (int start = 0; start < length; start += Staged) {
    const int here = smaller(Staged, length - start);
    {
      WL_REGION("load");
      __syncthreads();
      for (int i = threadIdx.x; i < here * Head; i += ROWS) {
        keys[i] = k[head + static_cast<long long>(start) * Head + i];
        values[i] = v[head + static_cast<long long>(start) * Head + i];
      }
      __syncthreads();
    }
    WL_REGION("rows");
    for (int key = 0; key < here; ++key) {
      float score = 0;
      UNROLL
      for (int d = 0; d < Head; ++d) score += query[d] * to_float(keys[key * Head + d]);
      const float high = Safe ? larger(top, score) : top;
      const float shrink = power_of_two(top - high), weight = power_of_two(score - high);
      top = high;
      total = total * shrink + weight;
      UNROLL
      for (int d = 0; d < Head; ++d) acc[d] = acc[d] * shrink + weight * to_float(values[key * Head + d]);
    }
  }
  WL_VALUE("row sum", static_cast<double>(total));
  {
    WL_REGION("store");
    UNROLL
    for (int d = 0; d < Head; ++d) out[head + static_cast<long long>(row) * Head + d] = element<T>(acc[d] / total);
  }
  if constexpr (Ordered) {
    __syncthreads();
    if (threadIdx.x == 0) write_now(turn, block + 1);
  }
}

}  // namespace broken

#ifdef ELEMENT
constexpr int MANY = 65536 / HEAD / sizeof(ELEMENT), FEW = 4096 / HEAD / sizeof(ELEMENT);  // 128 and 8 KB with the values
#define ROW(name, staged, ordered, safe)                                                                  \
  extern "C" __global__ void __launch_bounds__(broken::ROWS)                                              \
      name(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, unsigned* turn, int length, \
           float scale, wl::Buffer prof) {                                                                \
    broken::rows_attention<ELEMENT, HEAD, staged, ordered, safe>(q, k, v, out, turn, length, scale, prof);        \
  }
ROW(rows, FEW, false, true)
ROW(low_occupancy, MANY, false, true)
ROW(serialised, FEW, true, true)
ROW(overflowing, FEW, false, false)
#endif
