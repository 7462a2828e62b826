// Flash attention on the tensor cores (mma.sync, sm_80 and later): one pass over the keys with an online softmax; scores
// and weights live in registers, keys and values are copied one tile ahead.
// -DHEAD=64 or 128, -DELEMENT=half_t or bfloat_t. Grid: (tiles of 64 queries, heads); block: 128; shared memory:
// 4 tiles of 64 rows of HEAD + 8 elements.
#include <warplens.cuh>

#include "element.cuh"

namespace flashing {

constexpr int ROWS = 64, KEYS = 64, THREADS = 128, PAD = 8;  // 16 rows for each of 4 warps; the pad avoids bank conflicts

template <class T, int Head>
DEVICE void fetch(T* to, const T* from, int first, int length) {
  constexpr int Chunks = Head / 8;  // of 16 bytes
  for (int i = threadIdx.x; i < KEYS * Chunks; i += THREADS) {
    const int row = first + i / Chunks, column = i % Chunks * 8;
    const int inside = smaller(row, length - 1);  // a valid address, even if nothing is copied from it
    copy16(to + i / Chunks * (Head + PAD) + column, from + static_cast<long long>(inside) * Head + column, row < length ? 16 : 0);
  }
  copies_end();
}

template <class T, int Head>
__device__ void flash_attention(const T* q, const T* k, const T* v, T* out, int length, float scale, int causal,
                                wl::Buffer prof) {
  wl::Kernel kernel(prof);
  DYNAMIC_SHARED(T, shared);
  constexpr int Stride = Head + PAD, Tile = KEYS * Stride, Steps = Head / 16, Columns = Head / 8;
  T* const key_tiles = shared;  // two tiles; the values have two as well
  T* const value_tiles = shared + 2 * Tile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, pair = lane % 4;
  // With a causal mask, later rows take longer: start with the longest, so that the grid ends with short blocks.
  const int tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x, first = tile * ROWS;
  const long long head = static_cast<long long>(blockIdx.y) * length * Head;
  const int keys = causal ? smaller(first + ROWS, length) : length;
  const float slope = scale * LOG2E;

  // Load the queries into registers once, through the space of the second key tile.
  unsigned query[Steps][4];
  {
    WL_REGION("load q");
    fetch<T, Head>(key_tiles + Tile, q + head, first, length);
    fetch<T, Head>(key_tiles, k + head, 0, length);
    fetch<T, Head>(value_tiles, v + head, 0, length);
    copies_wait<2>();
    __syncthreads();
    UNROLL
    for (int step = 0; step < Steps; ++step) {
      load_matrices(query[step], key_tiles + Tile + (warp * 16 + lane % 16) * Stride + step * 16 + lane / 16 * 8);
    }
    __syncthreads();
  }

  float acc[Columns][4] = {};
  float top[2] = {LOWEST, LOWEST}, total[2] = {0, 0};  // for rows `group` and `group + 8` of this warp
  int stage = 0;
  for (int start = 0; start < keys; start += KEYS, stage ^= 1) {
    {
      WL_REGION("wait");
      if (start + KEYS < keys) {
        fetch<T, Head>(key_tiles + (stage ^ 1) * Tile, k + head, start + KEYS, length);
        fetch<T, Head>(value_tiles + (stage ^ 1) * Tile, v + head, start + KEYS, length);
        copies_wait<2>();
      } else {
        copies_wait<0>();
      }
      __syncthreads();
    }
    float score[KEYS / 8][4] = {};
    {
      WL_REGION("qk");
      const T* const tile_keys = key_tiles + stage * Tile;
      UNROLL
      for (int step = 0; step < Steps; ++step)
        UNROLL
        for (int n = 0; n < KEYS / 16; ++n) {
          unsigned b[4];
          load_matrices(b, tile_keys + (n * 16 + lane / 16 * 8 + lane % 8) * Stride + step * 16 + lane / 8 % 2 * 8);
          multiply_add(T(), score[2 * n], query[step], b[0], b[1]);
          multiply_add(T(), score[2 * n + 1], query[step], b[2], b[3]);
        }
    }
    unsigned weight[KEYS / 16][4];
    {
      WL_REGION("softmax");
      if (start + KEYS > length || (causal && start + KEYS > first + warp * 16)) {
        UNROLL
        for (int n = 0; n < KEYS / 8; ++n)
          UNROLL
          for (int i = 0; i < 4; ++i) {
            const int key = start + n * 8 + pair * 2 + i % 2, row = first + warp * 16 + group + i / 2 * 8;
            if (key >= length || (causal && key > row)) score[n][i] = LOWEST;
          }
      }
      UNROLL
      for (int half = 0; half < 2; ++half) {
        float high = LOWEST;
        UNROLL
        for (int n = 0; n < KEYS / 8; ++n) high = larger(high, larger(score[n][2 * half], score[n][2 * half + 1]));
        high = larger(top[half], largest_of<4>(high) * slope);
        const float shrink = power_of_two(top[half] - high);
        float sum = 0;
        UNROLL
        for (int n = 0; n < KEYS / 8; ++n)
          UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            score[n][i] = power_of_two(score[n][i] * slope - high);
            sum += score[n][i];
          }
        total[half] = total[half] * shrink + sum;
        top[half] = high;
        UNROLL
        for (int n = 0; n < Columns; ++n) acc[n][2 * half] *= shrink, acc[n][2 * half + 1] *= shrink;
      }
      UNROLL
      for (int n = 0; n < KEYS / 8; ++n) {
        weight[n / 2][n % 2 * 2] = pack(T(), score[n][0], score[n][1]);
        weight[n / 2][n % 2 * 2 + 1] = pack(T(), score[n][2], score[n][3]);
      }
    }
    {
      WL_REGION("pv");
      const T* const tile_values = value_tiles + stage * Tile;
      UNROLL
      for (int step = 0; step < KEYS / 16; ++step)
        UNROLL
        for (int n = 0; n < Columns / 2; ++n) {
          unsigned b[4];
          load_matrices_transposed(b, tile_values + (step * 16 + lane / 8 % 2 * 8 + lane % 8) * Stride + n * 16 + lane / 16 * 8);
          multiply_add(T(), acc[2 * n], weight[step], b[0], b[1]);
          multiply_add(T(), acc[2 * n + 1], weight[step], b[2], b[3]);
        }
      __syncthreads();  // the copies of the next iteration overwrite this tile
    }
  }
  WL_REGION("store");
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first + warp * 16 + group + half * 8;
    const float scale_back = 1.0f / sum_of<4>(total[half]);
    if (row >= length) continue;
    unsigned* const to = reinterpret_cast<unsigned*>(out + head + static_cast<long long>(row) * Head);
    UNROLL
    for (int n = 0; n < Columns; ++n) {
      to[n * 4 + pair] = pack(T(), acc[n][2 * half] * scale_back, acc[n][2 * half + 1] * scale_back);
    }
  }
}

}  // namespace flashing

#ifdef ELEMENT
extern "C" __global__ void __launch_bounds__(128)
    flash(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* out, int length, float scale, int causal,
          wl::Buffer prof) {
  flashing::flash_attention<ELEMENT, HEAD>(q, k, v, out, length, scale, causal, prof);
}
#endif
