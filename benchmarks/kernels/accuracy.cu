// Regions of known length: WORK picks what is inside, AMOUNT how much of it. The loop runs every region often and
// warms caches and instruction memory first. `cycles` gets the same work timed without marks, per repetition.
#include <warplens.cuh>

#define FMA 0
#define SHARED 1
#define L2 2
#define SLEEP 3
#define NESTED 4

#if WORK == FMA
#define STATE float v = 1.0f
#define DO _Pragma("unroll") for (int j = 0; j < AMOUNT; ++j) asm volatile("fma.rn.f32 %0, %0, 0f3F800347, 0f3F000000;" : "+f"(v))
#define KEEP v == 3.0f
#elif WORK == SHARED
#define STATE __shared__ unsigned ring[256]; for (unsigned i = threadIdx.x; i < 256; i += 32) ring[i] = static_cast<unsigned>(__cvta_generic_to_shared(&ring[(i * 37 + 11) & 255])); __syncwarp(); unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(ring))
#define DO _Pragma("unroll 16") for (int j = 0; j < AMOUNT; ++j) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at))
#define KEEP at == 3u
#elif WORK == L2
#define STATE unsigned long long at = chase
#define DO at = chase; _Pragma("unroll 16") for (int j = 0; j < AMOUNT; ++j) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at))
#define KEEP at == 3u
#elif WORK == SLEEP
#define STATE unsigned long long inside = 0, a, b
#define DO asm volatile("mov.u64 %0, %%clock64;" : "=l"(a)); __nanosleep(AMOUNT); asm volatile("mov.u64 %0, %%clock64;" : "=l"(b)); inside = b - a; WL_VALUE("inside", inside)
#define KEEP inside == 3u
#elif WORK == NESTED
#define STATE int v = 0
#define LEVEL(n, body) { WL_REGION("level " #n); body }
#if AMOUNT == 1
#define DO LEVEL(1, )
#elif AMOUNT == 2
#define DO LEVEL(1, LEVEL(2, ))
#elif AMOUNT == 3
#define DO LEVEL(1, LEVEL(2, LEVEL(3, )))
#else
#define DO LEVEL(1, LEVEL(2, LEVEL(3, LEVEL(4, ))))
#endif
#define KEEP v == 3
#endif

extern "C" __global__ void accuracy(unsigned long long* cycles, unsigned long long chase, int repeats, wl::Buffer prof) {
  wl::Kernel k(prof);
  STATE;
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    WL_REGION("work");
    DO;
  }
  unsigned long long t0, t1;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t0)::"memory");
#if WORK == FMA || WORK == SHARED || WORK == L2
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) { DO; }
#endif
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t1)::"memory");
  if (threadIdx.x == 0) cycles[blockIdx.x] = t1 - t0 + (KEEP);
  (void)chase;
}

// Every warp of every block passes a grid-wide barrier and marks the moment.
extern "C" __global__ void barrier(unsigned* arrived, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  for (int round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(arrived, 1u);
    if ((threadIdx.x & 31) == 0) {
      unsigned seen;
      do asm volatile("ld.global.relaxed.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
      while (seen < round * gridDim.x);
    }
    __syncwarp();
    WL_INSTANT("past the barrier");
    WL_ANCHOR();
    __nanosleep(20000);
  }
}
