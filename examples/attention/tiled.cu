// Attention with tiles in shared memory: 64 queries share each key and value, and no score leaves the SM.
// Two passes over the keys: the first finds each row's maximum and sum, the second weights the values.
// -DHEAD=64 or 128, -DELEMENT=float, half_t or bfloat_t. Grid: (tiles of 64 queries, heads); block: 256;
// shared memory: Tiles<HEAD>.
#include <warplens.cuh>

#include "element.cuh"

namespace tiling {

constexpr int ROWS = 64, KEYS = 64, SIDE = 16, EACH = ROWS / SIDE;  // 16 x 16 threads, 4 x 4 scores each

template <int Head>
struct Tiles {
  // One extra column avoids bank conflicts between threads that read down a column.
  float q[ROWS][Head + 1], kv[KEYS][Head + 1], weights[ROWS][KEYS + 1];
};

template <class T, int Head>
DEVICE void fill(float (&to)[KEYS][Head + 1], const T* from, int first, int length) {
  for (int i = threadIdx.x; i < KEYS * Head; i += SIDE * SIDE) {
    const int row = first + i / Head;
    to[i / Head][i % Head] = row < length ? to_float(from[static_cast<long long>(row) * Head + i % Head]) : 0.0f;
  }
}

template <class T, int Head>
__device__ void tiled_attention(const T* q, const T* k, const T* v, T* out, int length, float scale, int causal,
                                wl::Buffer prof) {
  wl::Kernel kernel(prof);
  DYNAMIC_SHARED(Tiles<Head>, tiles);
  const int first = blockIdx.x * ROWS, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  const long long head = static_cast<long long>(blockIdx.y) * length * Head;
  const int keys = causal ? smaller(first + ROWS, length) : length;
  {
    WL_REGION("load q");
    fill<T, Head>(tiles->q, q + head, first, length);
  }

  // The 4 x 4 scores of this thread: rows y, y + 16, ..., keys x, x + 16, ...
  float score[EACH][EACH];
  const auto scores_of = [&](int start) {
    {
      WL_REGION("load k");
      __syncthreads();
      fill<T, Head>(tiles->kv, k + head, start, length);
      __syncthreads();
    }
    WL_REGION("qk");
    UNROLL
    for (auto& row : score)
      UNROLL
      for (float& one : row) one = 0;
    for (int d = 0; d < Head; ++d) {
      float a[EACH], b[EACH];
      UNROLL
      for (int i = 0; i < EACH; ++i) a[i] = tiles->q[y + SIDE * i][d], b[i] = tiles->kv[x + SIDE * i][d];
      UNROLL
      for (int i = 0; i < EACH; ++i)
        UNROLL
        for (int j = 0; j < EACH; ++j) score[i][j] += a[i] * b[j];
    }
    UNROLL
    for (int i = 0; i < EACH; ++i)
      UNROLL
      for (int j = 0; j < EACH; ++j) {
        const int row = first + y + SIDE * i, key = start + x + SIDE * j;
        const bool seen = key < length && (!causal || key <= row);
        score[i][j] = seen ? score[i][j] * scale * LOG2E : LOWEST;
      }
  };

  float top[EACH], total[EACH];
  UNROLL
  for (int i = 0; i < EACH; ++i) top[i] = LOWEST, total[i] = 0;
  for (int start = 0; start < keys; start += KEYS) {
    scores_of(start);
    WL_REGION("row sums");
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      float high = top[i];
      UNROLL
      for (int j = 0; j < EACH; ++j) high = larger(high, score[i][j]);
      high = largest_of<SIDE>(high);
      float sum = 0;
      UNROLL
      for (int j = 0; j < EACH; ++j) sum += power_of_two(score[i][j] - high);
      total[i] = total[i] * power_of_two(top[i] - high) + sum_of<SIDE>(sum);
      top[i] = high;
    }
  }

  constexpr int Columns = Head / SIDE;
  float acc[EACH][Columns] = {};
  for (int start = 0; start < keys; start += KEYS) {
    scores_of(start);
    {
      WL_REGION("load v");
      UNROLL
      for (int i = 0; i < EACH; ++i)
        UNROLL
        for (int j = 0; j < EACH; ++j) tiles->weights[y + SIDE * i][x + SIDE * j] = power_of_two(score[i][j] - top[i]);
      __syncthreads();
      fill<T, Head>(tiles->kv, v + head, start, length);
      __syncthreads();
    }
    WL_REGION("pv");
    for (int key = 0; key < KEYS; ++key) {
      float b[Columns];
      UNROLL
      for (int j = 0; j < Columns; ++j) b[j] = tiles->kv[key][x + SIDE * j];
      UNROLL
      for (int i = 0; i < EACH; ++i) {
        const float weight = tiles->weights[y + SIDE * i][key];
        UNROLL
        for (int j = 0; j < Columns; ++j) acc[i][j] += weight * b[j];
      }
    }
  }
  WL_REGION("store");
  UNROLL
  for (int i = 0; i < EACH; ++i) {
    const int row = first + y + SIDE * i;
    if (row >= length) continue;
    UNROLL
    for (int j = 0; j < Columns; ++j) {
      out[head + static_cast<long long>(row) * Head + x + SIDE * j] = element<T>(acc[i][j] / total[i]);
    }
  }
}

}  // namespace tiling

#ifdef ELEMENT
extern "C" __global__ void __launch_bounds__(256)
    tiled(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, int length, float scale, int causal,
          wl::Buffer prof) {
  tiling::tiled_attention<ELEMENT, HEAD>(q, k, v, out, length, scale, causal, prof);
}
#endif
