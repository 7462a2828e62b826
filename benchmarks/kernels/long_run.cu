// Runs for `nanoseconds`, in steps of `period` that are busy and idle in turn, `alternate` nanoseconds each. After each step
// the global timer is recorded as a value, so that the trace's placement of it can be compared. The region "whole" holds the
// run, and its length in cycles of the 64-bit clock is the last value. ANCHORS=1 also ties the clock to the timer after each
// step, as a kernel of many milliseconds should.
#include <warplens.cuh>

constexpr unsigned long long WITHIN = (1ull << 44) - 1;  // a value is a double, which holds no whole timer

__device__ __forceinline__ unsigned long long timer() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

__device__ __forceinline__ unsigned long long clock_now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}

extern "C" __global__ void long_run(float* out, unsigned long long nanoseconds, unsigned long long period,
                                    unsigned long long alternate, wl::Buffer prof) {
  wl::Kernel k(prof);
  const unsigned long long begin = timer();
  unsigned long long cycles;
  float v = threadIdx.x;
  {
    WL_REGION("whole");
    const unsigned long long from = clock_now();
#pragma unroll 1
    for (unsigned long long next = begin + period; next <= begin + nanoseconds; next += period) {
      {
        WL_REGION("step");
        const bool busy = (next - begin) / alternate % 2 == 0;
        while (timer() < next) {
          if (busy) {
#pragma unroll
            for (int i = 0; i < 256; ++i) v = fmaf(v, 0.999f, 0.001f);
          } else {
            __nanosleep(2000);
          }
        }
      }
      WL_VALUE("timer", timer() & WITHIN);
#if ANCHORS
      WL_ANCHOR();
#endif
    }
    cycles = clock_now() - from;
  }
  WL_VALUE("cycles", cycles);
  if (v == 12345.0f) out[0] = v;
}
