// Cost of one mark: begin/end pairs back to back in each warp, one design per compilation (-DDESIGN=...).
// A span is two marks for every design, also for those that store one event per span.
#define FLOOR 0        // a clock read whose value is used once
#define HEADER 1       // warplens.cuh (-DWARPLENS_RING=1 for its ring)
#define ATOMIC 2       // slot from an atomic in global memory, four int64 stores per span
#define COUNTER 3      // counter of the warp in global memory, 40-byte event per span
#define FENCED 4       // register pointer, globaltimer_lo, 8-byte store between two fences
#define SHARED_RING 5  // 8-byte store into a shared-memory ring, flushed at the end
#define VARIANT 6      // a way of writing the header's record that was considered; -DHOW=...
#define EMPTY 7        // the loop alone

#include <warplens.cuh>

#ifndef PAIRS
#define PAIRS 4
#endif
typedef unsigned long long u64;

__device__ __forceinline__ unsigned clock_low() { unsigned v; asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory"); return v; }
__device__ __forceinline__ u64 clock_long() { u64 v; asm volatile("mov.u64 %0, %%clock64;" : "=l"(v)::"memory"); return v; }
__device__ __forceinline__ u64 timer() { u64 v; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory"); return v; }
__device__ __forceinline__ unsigned timer_low() { unsigned v; asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(v)::"memory"); return v; }

// memory: at least 64 bytes per mark and warp, zeroed. cycles: one per warp.
extern "C" __global__ void micro(u64* cycles, u64* memory, unsigned limit, int n, wl::Buffer prof) {
  const unsigned lane = threadIdx.x & 31, warp = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
#if DESIGN == FLOOR
  unsigned sum = 0;
#define BEGIN sum ^= clock_low()
#define END sum ^= clock_low()
#define FINISH if (sum == 0x9e3779b9u) memory[warp] = sum

#elif DESIGN == HEADER
  wl::Kernel k(prof);
#define BEGIN WL_BEGIN("work")
#define END WL_END("work")
#define FINISH

#elif DESIGN == ATOMIC
  u64 slot = 0, start = 0;
#define BEGIN if (lane == 0) { slot = atomicAdd(memory, 1ull); start = timer(); }
#define END if (lane == 0 && slot < limit) { \
    u64* event = memory + 1 + 4 * slot; const u64 now = timer(); \
    event[0] = start; event[1] = now - start; event[2] = 7; event[3] = warp; }
#define FINISH

#elif DESIGN == COUNTER
  struct Event { u64 start, end; unsigned id, sm, block, warp; u64 pad; };
  volatile u64* counter = memory + warp;
  Event* events = reinterpret_cast<Event*>(memory + gridDim.x * (blockDim.x >> 5)) + u64(warp) * limit;
#define BEGIN if (lane == 0) { const u64 i = *counter; if (i < limit) { \
    Event& e = events[i]; e.start = timer(); e.id = 7; e.block = blockIdx.x; e.warp = warp; e.sm = 0; } }
#define END if (lane == 0) { const u64 i = *counter; if (i < limit) { events[i].end = timer(); *counter = i + 1; } }
#define FINISH

#elif DESIGN == FENCED
  u64* at = memory + u64(warp) * limit;
  u64* const end_at = at + limit;
#define MARK(tag) do { __threadfence_block(); if (lane == 0 && at < end_at) { \
    *reinterpret_cast<uint2*>(at) = make_uint2(tag, timer_low()); ++at; } __threadfence_block(); } while (0)
#define BEGIN MARK(1)
#define END MARK(2)
#define FINISH

#elif DESIGN == SHARED_RING
  extern __shared__ uint2 rings[];
  uint2* ring = rings + (threadIdx.x >> 5) * 256;
  unsigned index = 0;
  const bool lead = lane == 0;
#define MARK(tag) do { const unsigned c = clock_low(); if (lead) ring[index & 255] = make_uint2(tag, c); ++index; } while (0)
#define BEGIN MARK(1)
#define END MARK(2)
#define FINISH { __syncwarp(); uint2* out = reinterpret_cast<uint2*>(memory) + u64(warp) * 256; \
    for (unsigned i = lane; i < 256; i += 32) out[i] = ring[i]; if (lead) cycles[gridDim.x * (blockDim.x >> 5) + warp] = index; }

#elif DESIGN == VARIANT
#include "variants.h"
  open_variant(reinterpret_cast<u64>(memory + u64(warp) * (limit + 8)), limit, lane == 0, reinterpret_cast<u64>(memory), u64(warp) * (limit + 8) * 8);
#define BEGIN VARIANT_BEGIN(1)
#define END VARIANT_RECORD(2)
#define FINISH if (lane == 0) cycles[gridDim.x * (blockDim.x >> 5) + warp] = close_variant()

#else
#define BEGIN asm volatile("" ::: "memory")
#define END asm volatile("" ::: "memory")
#define FINISH
#endif

  const u64 t0 = clock_long();
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      BEGIN;
      END;
    }
  }
  const u64 t1 = clock_long();
  FINISH;
  if (lane == 0) cycles[warp] = t1 - t0;
  (void)memory; (void)limit; (void)prof;
}
