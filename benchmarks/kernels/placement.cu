// Moments that all SMs share. First a grid-wide barrier, RELEASE says how it lets go, after which every SM marks the
// moment. Then, if asked, every SM exchanges messages with every other and marks when one was sent and when one was heard:
// how much longer they take there than back is twice what lies between the two clocks, whatever the global timer says.
#include <warplens.cuh>

#define LINES 0    // 32 flags; a block's warps watch different ones
#define OWN 1      // a flag for every block, watched by all its warps in turn
#define GROUP 2    // 16 flags, each watched by every 16th block
#define EQUAL 3    // the same; who is nearer to the flag and to who set it goes on as much later
#define TIMER 4    // the same flags carry a time, and all go on when the global timer shows it
#define CLUSTER 5  // the same flags, then a barrier of clusters of two

#ifndef POLL
#define POLL "ld.relaxed.gpu.global.u64"
#endif
#ifndef PACE
#define PACE 0  // cycles from a warp's poll to its next; 0: as soon as the last one is back, so that warps fall out of turn
#endif
#if RELEASE == LINES
#define FLAGS 32
#define WATCHED ((warp * 2 + blockIdx.x % 2) % FLAGS)
#define BETWEEN 0  // cycles between the first polls of two warps
#elif RELEASE == OWN
#define FLAGS gridDim.x
#define WATCHED blockIdx.x
#define BETWEEN 17
#else
#define FLAGS 16
#define WATCHED (blockIdx.x % FLAGS)
#define BETWEEN (PACE ? PACE * 32 / blockDim.x : 17)
#endif
#if RELEASE == CLUSTER
#define SHAPE __cluster_dims__(2, 1, 1)
#else
#define SHAPE
#endif

#define AHEAD 4000    // ns from the last arrival to the time that all wait for
#define QUIET 600     // cycles in which every warp of the other side has begun to poll
#define MOST_BLOCKS 256
#define MOST_FLAGS 32u  // but for one per block
#define PER_LINE 16   // words

typedef unsigned long long word;

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
__device__ __forceinline__ word timer() {
  word t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ word peek(const word* at) {
  word value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void poke(word* at, word value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ void wait(unsigned since, unsigned cycles) {
  while (now() - since < cycles) {}
}
// The clock when a word has come; no word is all ones.
__device__ __forceinline__ unsigned when_loaded(const word* at) {
  unsigned t;
  asm volatile(
      "{ .reg .b64 v; .reg .pred p;\n\t"
      "ld.relaxed.gpu.global.u64 v, [%1]; setp.ne.u64 p, v, -1; mov.u32 %0, 0; @p mov.u32 %0, %%clock; }"
      : "=r"(t) : "l"(at) : "memory");
  return t;
}
// The first word there that is at least `least`. A lost message must not hang the GPU.
__device__ __forceinline__ word await(const word* at, word least, unsigned after) {
  const unsigned from = now();
  word value;
  unsigned patience = 1u << 24;
  wait(from, after);
  do {
    asm volatile(POLL " %0, [%1];" : "=l"(value) : "l"(at) : "memory");
#if PACE
    if (value < least) wait(from, after += PACE);
#endif
  } while (value < least && --patience);
  if (!patience) __trap();
  return value;
}

// Lines: 0 counts arrivals, 1 holds the longest way and counts those ready, then the flags, then two words for
// every pair of blocks, then each block's way to each flag.
extern "C" __global__ void SHAPE barrier(word* memory, int rounds, int exchanges, wl::Buffer prof) {
  wl::Kernel k(prof);
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = gridDim.x;
  unsigned* arrivals = reinterpret_cast<unsigned*>(memory);
  word* flags = memory + 2 * PER_LINE;
  word* mail = flags + max(blocks, MOST_FLAGS) * PER_LINE;
  word* watched = flags + WATCHED * PER_LINE;
  word seen = 0;

#if RELEASE == EQUAL
  __shared__ unsigned way[MOST_BLOCKS];  // there and back, from every block to the flag that this one watches
  word* ways = mail + blocks * blocks * PER_LINE;
  word* longest = memory + PER_LINE;
  if (lane == 0)
    for (unsigned flag = warp; flag < FLAGS; flag += blockDim.x / 32) {
      unsigned best = ~0u;
      for (int i = 0; i < 32; ++i) {
        const unsigned from = now();
        best = min(best, when_loaded(flags + flag * PER_LINE) - from);
      }
      poke(ways + blockIdx.x * FLAGS + flag, best);
      atomicMax(longest, static_cast<word>(best));
    }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(longest + 1, 1ull);
    await(longest + 1, blocks, 0);
  }
  __syncthreads();
  for (unsigned b = threadIdx.x; b < blocks; b += blockDim.x) way[b] = static_cast<unsigned>(peek(ways + b * FLAGS + WATCHED));
  const unsigned most = static_cast<unsigned>(peek(longest));
#endif

  for (int round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (warp == 0) {
      unsigned before = 0;
      if (lane == 0) {
        __threadfence();
        before = atomicAdd(arrivals, 1u);
      }
      before = __shfl_sync(0xffffffffu, before, 0);
      if (before + 1 == round * blocks) {
        const word value = RELEASE == TIMER ? timer() + AHEAD : static_cast<word>(round) << 32 | blockIdx.x;
        for (unsigned flag = lane; flag < FLAGS; flag += 32) poke(flags + flag * PER_LINE, value);
      }
    }
    if (lane == 0) {
      seen = await(watched, seen + 1, warp * BETWEEN);
#if RELEASE == EQUAL
      const unsigned from = now();
      wait(from, most + 64 - (way[seen & 0xffffffffu] + way[blockIdx.x]) / 2);
#elif RELEASE == TIMER
      while (timer() < seen) {}
#endif
    }
    __syncwarp();
#if RELEASE == CLUSTER
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#endif
    WL_INSTANT("past the barrier");
    __threadfence();
    WL_ANCHOR();
    __nanosleep(20000);
  }

  // In round r, block b meets block r - b: each meets every other once.
  for (unsigned round = 0; exchanges && round < blocks; ++round) {
    const unsigned other = (round + blocks - blockIdx.x) % blocks;
    if (other == blockIdx.x) continue;
    const bool first = blockIdx.x < other;
    // Both ways through one line, so that what is far for a message is as far for its answer.
    word* pair = mail + (round * blocks + min(blockIdx.x, other)) * PER_LINE;
    for (int turn = 0; turn < 2 * exchanges; ++turn) {
      const word number = turn / 2 + 1;
      word* box = pair + turn % 2;
      if (first == (turn % 2 == 0)) {
        if (warp == 0) {
          wait(now(), QUIET);
          WL_INSTANT("sent");
          if (lane == 0) poke(box, number);
          __syncwarp();
        }
      } else {
        if (lane == 0) await(box, number, warp * BETWEEN);
        __syncwarp();
        WL_INSTANT("heard");
        __syncthreads();
      }
    }
    if (warp == 0) WL_ANCHOR();
  }
}
