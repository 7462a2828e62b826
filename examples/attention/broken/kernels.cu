// Attention kernels with one thing wrong each, beside the version that has it right. `python examples/attention/broken/run.py`
// profiles them, and `warplens diagnose` names what is wrong.
//
//   uncoalesced    a decode step whose lanes read keys a row apart      decode         neighbours read neighbours
//   low_occupancy  one warp per block that stages 128 KB                rows           the same, 8 KB at a time
//   serialised     blocks that take turns                               rows
//   overflowing    a softmax that does not subtract the maximum         rows
//
// -DHEAD and -DELEMENT as in the kernels above this folder.
#include <warplens.cuh>

#include "element.cuh"

namespace broken {

constexpr int DECODERS = 256, ROWS = 32, BATCH = 8;

// One query per head against all its keys: memory bound. Grid heads, block 256, shared memory for the scores
// (length floats) and for one row per 16-byte column of threads.
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

// A query per lane, `Staged` keys and values at a time in shared memory. Grid (tiles of 32 queries, heads), block 32,
// shared memory 2 * Staged rows.
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
    for (int key = 0; key < here; key += BATCH) {
      float score[BATCH], high = top;
      UNROLL
      for (int i = 0; i < BATCH; ++i) {
        score[i] = LOWEST;
        if (key + i >= here) continue;
        score[i] = 0;
        UNROLL
        for (int d = 0; d < Head; ++d) score[i] += query[d] * to_float(keys[(key + i) * Head + d]);
        if (Safe) high = larger(high, score[i]);
      }
      const float shrink = power_of_two(top - high);
      total *= shrink;
      UNROLL
      for (int d = 0; d < Head; ++d) acc[d] *= shrink;
      top = high;
      UNROLL
      for (int i = 0; i < BATCH; ++i) {
        if (key + i >= here) continue;
        const float weight = power_of_two(score[i] - top);
        total += weight;
        UNROLL
        for (int d = 0; d < Head; ++d) acc[d] += weight * to_float(values[(key + i) * Head + d]);
      }
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
#define DECODE(name, coalesced)                                                                                    \
  extern "C" __global__ void __launch_bounds__(broken::DECODERS)                                                   \
      name(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, int length, float scale, wl::Buffer prof) { \
    broken::decode_attention<ELEMENT, HEAD, coalesced>(q, k, v, out, length, scale, prof);                                 \
  }
#define ROW(name, staged, ordered, safe)                                                                  \
  extern "C" __global__ void __launch_bounds__(broken::ROWS)                                              \
      name(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, unsigned* turn, int length, \
           float scale, wl::Buffer prof) {                                                                \
    broken::rows_attention<ELEMENT, HEAD, staged, ordered, safe>(q, k, v, out, turn, length, scale, prof);        \
  }
DECODE(decode, true)
DECODE(uncoalesced, false)
ROW(rows, FEW, false, true)
ROW(low_occupancy, MANY, false, true)
ROW(serialised, FEW, true, true)
ROW(overflowing, FEW, false, false)
#endif
