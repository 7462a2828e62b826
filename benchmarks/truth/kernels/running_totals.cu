// Running totals of a long array in one pass. A block waits for the total of the one before it, or adds up what the
// blocks before it have found so far (REPAIRED=1).
#include <warplens.cuh>

constexpr unsigned long long PART = 1ull << 32, WHOLE = 2ull << 32;

extern "C" __global__ void __launch_bounds__(256)
    running_totals(const int4* in, int4* out, volatile unsigned long long* state, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned parts[8], before;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = blockIdx.x;
  int4 v;
  unsigned mine, total = 0, left = 0;
  {
    WL_REGION("step 1");
    v = in[block * 256 + threadIdx.x];
    v.y += v.x, v.z += v.y, v.w += v.z;
    mine = v.w;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const unsigned other = __shfl_up_sync(~0u, mine, step);
      if (lane >= step) mine += other;
    }
    if (lane == 31) parts[warp] = mine;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < warp) left += parts[i];
      total += parts[i];
    }
  }
  {
    WL_REGION("step 2");
#if REPAIRED
    if (warp == 0) {
      if (lane == 0 && block) state[block] = PART | total;
      unsigned sum = 0;
      for (int at = block - 1 - lane;; at -= 32) {
        unsigned long long seen;
        do seen = at >= 0 ? state[at] : WHOLE;
        while (__any_sync(~0u, seen < PART));
        const unsigned whole = __ballot_sync(~0u, seen >= WHOLE);
        const int last = whole ? __ffs(whole) - 1 : 31;
        sum += lane <= last ? static_cast<unsigned>(seen) : 0;
        if (whole) break;
      }
      for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane == 0) {
        state[block] = WHOLE | (sum + total);
        before = sum;
      }
    }
#else
    if (threadIdx.x == 0) {
      unsigned long long seen = WHOLE;
      if (block)
        do seen = state[block - 1];
        while (seen < WHOLE);
      before = static_cast<unsigned>(seen);
      state[block] = WHOLE | (before + total);
    }
#endif
    __syncthreads();
  }
  WL_REGION("step 3");
  const int base = static_cast<int>(before + left + mine) - v.w;
  out[block * 256 + threadIdx.x] = make_int4(base + v.x, base + v.y, base + v.z, base + v.w);
}
