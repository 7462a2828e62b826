// Every warp does work of known length `repeats` times in a region, and then without marks between two clock reads more.
// SETUP, INSIDE, AROUND and RESULT are PTX made by benchmarks/accuracy/snippets.py: %0 are cycles, %1 is memory to read.
#include <warplens.cuh>

extern "C" __global__ void known_work(unsigned long long* extra, const void* memory, int repeats, wl::Buffer prof) {
  wl::Kernel k(prof);
  unsigned long long cycles;
  asm volatile(SETUP : "=l"(cycles) : "l"(memory) : "memory");
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    {
      WL_REGION("work");
      asm volatile(INSIDE : "=l"(cycles)::"memory");
    }
    WL_VALUE("inside", cycles);
  }
#pragma unroll 1
  for (int i = 0; i < repeats; ++i) {
    asm volatile(AROUND : "=l"(cycles)::"memory");
    if (threadIdx.x == 0) extra[blockIdx.x * repeats + i] = cycles;
  }
  asm volatile(RESULT : "=l"(cycles)::"memory");
  if (cycles == 12345) extra[0] = 0;
}
