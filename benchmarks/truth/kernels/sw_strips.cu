// Scores of local alignments (Smith-Waterman). A warp goes along the target with 32 letters of the query; the warp with
// the next letters needs its last row, and is told when the row is complete, or after each 32 columns (REPAIRED=1).
// `done` goes on from launch to launch, which `launch` numbers.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(32)
    sw_strips(const int* queries, const int* targets, int* rows, volatile int* done, int* best, int strips,
              int columns, int launch, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int lane = threadIdx.x, strip = blockIdx.x % strips, before = launch * columns;
  const int* const target = targets + blockIdx.x / strips * columns;
  const int* const above = rows + (blockIdx.x - 1) * columns;
  int* const below = rows + blockIdx.x * columns;
  const int mine = queries[blockIdx.x * 32 + lane];
  int letter = 0, left = 0, corner = 0, most = 0;
#pragma unroll 1
  for (int base = 0; base <= columns; base += 32) {
    const bool inside = base < columns;
    {
      WL_REGION("above");
      if (strip && inside && lane == 0) {
        while (done[blockIdx.x - 1] < before + base + 32) {
        }
        __threadfence();
      }
      __syncwarp();
    }
    {
      WL_REGION("cells");
      const int letters = inside ? target[base + lane] : 0, top = strip && inside ? __ldcg(above + base + lane) : 0;
#pragma unroll 4
      for (int step = 0; step < 32; ++step) {
        const int column = base + step - lane, row_above = __shfl_sync(~0u, top, step);
        const int next = __shfl_sync(~0u, letters, step);
        int up = __shfl_up_sync(~0u, left, 1);
        letter = __shfl_up_sync(~0u, letter, 1);
        if (lane == 0) up = row_above, letter = next;
        if (column >= 0 && column < columns) {
          left = max(max(0, corner + (letter == mine ? 2 : -1)), max(up, left) - 1);
          corner = up;
          most = max(most, left);
          if (lane == 31) __stcg(below + column, left);
        }
      }
    }
    if (lane == 31 && (REPAIRED || !inside)) {
      __threadfence();
      done[blockIdx.x] = before + min(base + 1, columns);
    }
  }
  most = __reduce_max_sync(~0u, most);
  if (lane == 0) atomicMax(&best[blockIdx.x / strips], most);
}
