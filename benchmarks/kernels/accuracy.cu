// Regions of known length: WORK picks what is inside, AMOUNT how much of it. The marked loop runs first; then the same
// work is timed without marks, once per iteration and twice per iteration: the difference is its length, free of the loop.
#include <warplens.cuh>

#define FMA 0
#define SHARED 1
#define L2 2
#define SLEEP 3
#define NESTED 4  // regions inside each other, AMOUNT deep, EACH fmas in each

// Waits for a loaded value, so that the load's latency lies inside the region. `zero` is 0 at run time only.
#define ARRIVED(constraint, type) asm volatile("xor." type " %0, %0, %1;" : "+" constraint(at) : constraint(zero))
// No constant in a register: ptxas would rebuild it inside the region, which is 10 cycles on Hopper.
#define CHAIN(n) _Pragma("unroll") for (int j = 0; j < n; ++j) asm volatile("fma.rn.f32 %0, %0, %0, 0f3F000000;" : "+f"(v))

#define AFTER
#if WORK == FMA
#define STATE float v = 1.0f
#define DO CHAIN(AMOUNT)
#define KEEP v == 3.0f
#elif WORK == SHARED
#define STATE                                                                                                     \
  __shared__ unsigned ring[256];                                                                                  \
  const unsigned zero = static_cast<unsigned>(repeats) >> 30;                                                     \
  for (unsigned i = threadIdx.x; i < 256; i += 32)                                                                \
    ring[i] = static_cast<unsigned>(__cvta_generic_to_shared(&ring[(i * 37 + 11) & 255]));                        \
  __syncwarp();                                                                                                   \
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(ring))
#define DO _Pragma("unroll") for (int j = 0; j < AMOUNT; ++j) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)); ARRIVED("r", "b32")
#define KEEP at == 3u
#elif WORK == L2
#define STATE const unsigned long long zero = static_cast<unsigned>(repeats) >> 30; unsigned long long at = chase
#define DO at = chase + (at & zero); _Pragma("unroll") for (int j = 0; j < AMOUNT; ++j) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at)); ARRIVED("l", "b64")
#define KEEP at == 3u
#elif WORK == SLEEP
#define STATE unsigned inside = 0, a, b
#define DO asm volatile("mov.u32 %0, %%clock;" : "=r"(a)::"memory"); __nanosleep(AMOUNT); asm volatile("mov.u32 %0, %%clock;" : "=r"(b)::"memory"); inside = b - a
#undef AFTER
#define AFTER WL_VALUE("inside", inside)
#define KEEP inside == 3u
#elif WORK == NESTED
#define STATE float v = 1.0f
#define LEVEL(n, body) { WL_REGION("level " #n); CHAIN(EACH); body }
#if AMOUNT == 1
#define DO LEVEL(1, )
#elif AMOUNT == 2
#define DO LEVEL(1, LEVEL(2, ))
#elif AMOUNT == 3
#define DO LEVEL(1, LEVEL(2, LEVEL(3, )))
#else
#define DO LEVEL(1, LEVEL(2, LEVEL(3, LEVEL(4, ))))
#endif
#define KEEP v == 3.0f
#endif

__device__ __forceinline__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}

extern "C" __global__ void accuracy(unsigned long long* cycles, unsigned long long chase, int repeats, wl::Buffer prof) {
  wl::Kernel k(prof);
  STATE;
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    {
      WL_REGION("work");
      DO;
    }
    AFTER;
  }
  const unsigned long long t0 = now();
#if WORK == FMA || WORK == SHARED || WORK == L2
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) { DO; }
#endif
  const unsigned long long t1 = now();
#if WORK == FMA || WORK == SHARED || WORK == L2
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) { DO; DO; }
#endif
  const unsigned long long t2 = now();
  if (threadIdx.x == 0) {
    cycles[0] = t1 - t0 + (KEEP);
    cycles[1] = t2 - t1;
  }
  (void)chase;
}

// The block's warps wait until all blocks have arrived, then mark the moment. The last to arrive tells everybody through
// 32 words on different lines, and the warps of a block watch different ones: what counts is the first that sees it.
extern "C" __global__ void barrier(unsigned* memory, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  volatile unsigned* flags = memory + 32;
  for (int round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (warp == 0) {
      unsigned before = lane == 0 ? atomicAdd(memory, 1u) : 0;
      before = __shfl_sync(0xffffffffu, before, 0);
      if (before == round * gridDim.x - 1) flags[lane * 32] = round;
    }
    if (lane == 0)
      while (flags[(warp * 2 + blockIdx.x % 2) % 32 * 32] < round) {}
    __syncwarp();
    WL_INSTANT("past the barrier");
    WL_ANCHOR();
    __nanosleep(20000);
  }
}
