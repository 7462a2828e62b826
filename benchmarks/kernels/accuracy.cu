// Regions of known length: WORK picks what is inside, AMOUNT how much of it. The marked loop runs first. Then two clock
// reads stand around the same work without marks, once around it and once around it twice: the difference is its length,
// from the issue of its first instruction to that of an instruction that needs its last result, free of the reads' own.
#include <warplens.cuh>

#define FMA 0
#define SHARED 1
#define L2 2
#define SLEEP 3
#define NESTED 4  // regions inside each other, AMOUNT deep, EACH fmas in each

// Waits for a loaded value, so that the load's latency lies inside the region, as a user's first use of it would; its own
// cycles are part of the work. `zero` is 0 at run time only.
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
#elif WORK == L2  // a ring of AMOUNT slots: the same loads every time
#define STATE const unsigned long long zero = static_cast<unsigned>(repeats) >> 30; unsigned long long at = chase
#define DO _Pragma("unroll") for (int j = 0; j < AMOUNT; ++j) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at)); ARRIVED("l", "b64")
#define KEEP at == 3u
#elif WORK == SLEEP
#define STATE unsigned long long a = 0, b = 0
#define DO a = now(); __nanosleep(AMOUNT); b = now()
#undef AFTER
#define AFTER WL_VALUE("inside", b - a)
#define KEEP b == 3
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

#if WORK == FMA || WORK == SHARED || WORK == L2
#define ONCE(sample) { const unsigned long long from = now(); DO; sample = now() - from; }
#if AMOUNT <= 256
#define TWICE(sample) { const unsigned long long from = now(); DO; DO; sample = now() - from; }
#else  // follows from shorter chains; the compiler takes seconds for two more copies of thousands of instructions
#define TWICE(sample) sample = 0
#endif
#elif WORK == SLEEP  // what two reads more than those around the sleep take
#define ONCE(sample) { const unsigned long long from = now(); a = now(); b = now(); sample = now() - from - (b - a); }
#define TWICE(sample) sample = 0
#else
#define ONCE(sample) sample = 0
#define TWICE(sample) sample = 0
#endif
#define MOST_REPEATS 256

// `cycles` has room for two samples of each repetition: the work once, and twice.
extern "C" __global__ void accuracy(unsigned long long* cycles, unsigned long long chase, int repeats, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ unsigned long long samples[2][MOST_REPEATS];  // no store to global memory beside the work
  STATE;
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    {
      WL_REGION("work");
      DO;
    }
    AFTER;
  }
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) ONCE(samples[0][i % MOST_REPEATS]);
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) TWICE(samples[1][i % MOST_REPEATS]);
  if (threadIdx.x == 0)
    for (int i = 0; i < repeats; ++i) {
      cycles[i] = samples[0][i % MOST_REPEATS] + (KEEP);
      cycles[repeats + i] = samples[1][i % MOST_REPEATS];
    }
  (void)chase;
}
