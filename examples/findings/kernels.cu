// Kernels with a known problem, each with a version without it. `warplens stats --findings` must list the problem first.
// `python examples/findings/run.py` runs all of them on the current GPU.
#include <warplens.cuh>

// Each load depends on the previous one, and a branch needs the last, so all of the latency stays in the region.
__device__ __forceinline__ int chase(const int* table, int at, int steps, float* out) {
  for (int i = 0; i < steps; ++i) at = __ldcg(table + at);
  if (at < 0) *out = at;
  return at;
}

// A chain of dependent fmas, 4 cycles each.
__device__ __forceinline__ float chain(float x, int steps, float* out) {
#pragma unroll 16
  for (int i = 0; i < steps; ++i) x = fmaf(x, 0.999f, 0.001f);
  if (x == 12345.0f) *out = x;
  return x;
}

// Each warp loads and works in turn; `rounds` sets how often, per block.
extern "C" __global__ void rows(const int* table, const int* rounds, int steps, int length, float* out,
                                wl::Buffer prof) {
  wl::Kernel k(prof);
  int at = (blockIdx.x * 64 + threadIdx.x / 32) & 0xffff;  // the table has 65,536 entries
  float x = 1.0f;
  for (int i = 0; i < rounds[blockIdx.x]; ++i) {
    {
      WL_REGION("load");
      at = chase(table, at, steps, out);
    }
    WL_REGION("work");
    x = chain(x, length, out);
  }
  if (threadIdx.x == 0) out[1 + blockIdx.x] = x;
}

// Load from a table that fits into L2 and, every second time or never, from one that does not.
extern "C" __global__ void lookups(const int* small, const int* large, int rounds, int misses, float* out,
                                   wl::Buffer prof) {
  wl::Kernel k(prof);
  int near = blockIdx.x, far = blockIdx.x * 1000003 & 0x3ffffff;
  for (int i = 0; i < rounds; ++i) {
    WL_REGION("load");
    if (misses && i % 2)
      far = chase(large, far, 4, out);
    else
      near = chase(small, near, 4, out);
  }
  if (threadIdx.x == 0) out[1 + blockIdx.x] = near + far;
}

// Copy asynchronously to shared memory; `ahead` copies are started before the work that needs the first.
extern "C" __global__ void copies(const int* large, int rounds, int ahead, int length, float* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int tile[8][128][4];
  unsigned at = blockIdx.x * 7919 + threadIdx.x * 104729;
  float x = 1.0f;
  for (int i = 0; i < rounds + ahead - 1; ++i) {
    if (i < rounds) {
      WL_REGION("copy issue");
      at = at * 1664525u + 1013904223u;
      const int* from = large + (at & 0x3fffffcu);
      const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile[i % 8][threadIdx.x]));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (i < ahead - 1) continue;
    {
      WL_REGION("wait copy");
      if (ahead == 1)
        asm volatile("cp.async.wait_group 0;" ::: "memory");
      else
        asm volatile("cp.async.wait_group 3;" ::: "memory");
      __syncthreads();
    }
    WL_REGION("work");
    x = chain(x + tile[(i - ahead + 1) % 8][threadIdx.x][0], length, out);
  }
  if (threadIdx.x == 0) out[1 + blockIdx.x] = x;
}

// Warp 0 loads, warps 1 to 3 process the data; with one stage, loading and processing do not overlap.
extern "C" __global__ void handoff(const int* table, int rounds, int steps, int length, float* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int stage;
  int at = blockIdx.x;
  float x = 1.0f;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x < 32) {
      {
        WL_REGION("load");
        at = chase(table, at, steps, out);
        stage = at;
      }
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      WL_REGION("wait empty");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    } else {
      {
        WL_REGION("wait full");
        asm volatile("bar.sync 1, 128;" ::: "memory");
      }
      {
        WL_REGION("mma");
        x = chain(x + stage, length, out);
      }
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
  if (threadIdx.x == 32) out[1 + blockIdx.x] = x;
}
