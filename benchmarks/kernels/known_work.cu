// Every warp does work of known length `repeats` times in a region, and then without marks between two clock reads more.
// INSIDE and AROUND are PTX made by benchmarks/accuracy/snippets.py: %0 are cycles, %1 is memory to read.
#include <warplens.cuh>

extern "C" __global__ void known_work(unsigned long long* extra, const void* memory, int repeats, wl::Buffer prof) {
  wl::Kernel k(prof);
  unsigned long long cycles;
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    {
      WL_REGION("work");
      asm volatile(INSIDE : "=l"(cycles) : "l"(memory) : "memory");
    }
    WL_VALUE("inside", cycles);
  }
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    asm volatile(AROUND : "=l"(cycles) : "l"(memory) : "memory");
    if (threadIdx.x == 0) extra[blockIdx.x * repeats + i] = cycles;
  }
}
