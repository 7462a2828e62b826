// Kernels of the third set of pairs, repaired where REPAIRED is 1. Their regions have names that say nothing about the cause.
#include <warplens.cuh>

constexpr int SIDE = 32;

/* Transposes squares of SIDE x SIDE; broken writes columns of the result. */
extern "C" __global__ void __launch_bounds__(SIDE * 8) turn_sheet(const float* in, float* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float sheet[SIDE][SIDE + 1];
  const int x = blockIdx.x * SIDE, y = blockIdx.y * SIDE, column = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
#if REPAIRED
  {
    WL_REGION("part 1");
    for (int row = first; row < SIDE; row += 8) sheet[row][column] = in[(y + row) * n + x + column];
    __syncthreads();
  }
  WL_REGION("part 2");
  for (int row = first; row < SIDE; row += 8) out[(x + row) * n + y + column] = sheet[column][row];
#else
  float held[SIDE / 8];
  {
    WL_REGION("part 1");
#pragma unroll
    for (int i = 0; i < SIDE / 8; ++i) held[i] = in[(y + first + 8 * i) * n + x + column];
  }
  WL_REGION("part 2");
#pragma unroll
  for (int i = 0; i < SIDE / 8; ++i) out[(x + column) * n + y + first + 8 * i] = held[i];
  (void)sheet;
#endif
}

/* Repeated transposition inside shared memory; the rows of the broken one all begin in the same bank. */
extern "C" __global__ void __launch_bounds__(256) mix_sheet(float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  constexpr int PITCH = REPAIRED ? SIDE + 1 : SIDE;
  __shared__ float sheets[2][SIDE * PITCH];
  const int column = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
  for (int row = first; row < SIDE; row += 8) sheets[0][row * PITCH + column] = row * SIDE + column;
  __syncthreads();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("turn");
    const float* from = sheets[round % 2];
    float* to = sheets[1 - round % 2];
#pragma unroll
    for (int row = 0; row < SIDE; row += 8) to[(row + first) * PITCH + column] = from[column * PITCH + row + first] + 1;
    __syncthreads();
  }
  for (int row = first; row < SIDE; row += 8) out[(blockIdx.x * SIDE + row) * SIDE + column] = sheets[rounds % 2][row * PITCH + column];
}

/* Each thread sums the fields of its own records, or of records that are stored field by field. */
extern "C" __global__ void __launch_bounds__(256) add_fields(const float* in, float* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  constexpr int FIELDS = 16;
  const int i = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  {
    WL_REGION("A");
#pragma unroll
    for (int field = 0; field < FIELDS; ++field) sum += REPAIRED ? in[field * n + i] : in[i * FIELDS + field];
  }
  WL_REGION("B");
  out[i] = sum;
}

/* Evaluates chains of multiplications; `units` of them per block. The grid decides how well the last wave is filled. */
extern "C" __global__ void __launch_bounds__(1024) heavy_units(float* out, int units, wl::Buffer prof) {
  wl::Kernel k(prof);
  float x = threadIdx.x * 1e-3f;
#pragma unroll 1
  for (int unit = 0; unit < units; ++unit) {
    WL_REGION("unit");
#pragma unroll 16
    for (int i = 0; i < 512; ++i) x = fmaf(x, 0.999f, 0.25f);
  }
  out[blockIdx.x * 1024 + threadIdx.x] = x;
}

/* Each warp makes a partial result; warp 0 alone, or every warp for its share, does what follows. */
extern "C" __global__ void __launch_bounds__(256) finish_rows(const float* in, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[256];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("first");
      parts[threadIdx.x] = in[(blockIdx.x * rounds + round) * 256 + threadIdx.x];
      __syncthreads();
    }
    {
      WL_REGION("second");
      if (REPAIRED || warp == 0) {
        for (int part = REPAIRED ? warp : 0; part < (REPAIRED ? warp + 1 : 8); ++part) {
          float x = parts[part * 32 + lane];
#pragma unroll 8
          for (int i = 0; i < 64; ++i) x = fmaf(x, 0.5f, 1.0f);
          parts[part * 32 + lane] = x;
        }
      }
    }
    {
      WL_REGION("third");
      __syncthreads();
    }
    out[(blockIdx.x * rounds + round) * 256 + threadIdx.x] = parts[threadIdx.x];
    __syncthreads();
  }
}

/* Running sums over blocks. A block waits for its predecessor before it reads its values, or after. */
extern "C" __global__ void __launch_bounds__(256)
    chained_sums(const float* in, float* out, volatile float* sums, volatile int* ready, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float total, before;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  float values[8], sum = 0;
  auto work = [&] {
    WL_REGION("B");
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = in[(blockIdx.x * 8 + i) * 256 + threadIdx.x];
    for (int round = 0; round < 24; ++round)
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = fmaf(values[i], 0.5f, 0.5f * values[i]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += values[i];
    atomicAdd(&total, sum);
    __syncthreads();
  };
  auto turn = [&] {
    WL_REGION("A");
    if (threadIdx.x == 0) {
      while (blockIdx.x && !ready[blockIdx.x - 1]) __nanosleep(20);
      __threadfence();
      before = blockIdx.x ? sums[blockIdx.x - 1] : 0.0f;
    }
    __syncthreads();
  };
#if REPAIRED
  work();
  turn();
#else
  turn();
  work();
#endif
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = before + total;
    __threadfence();
    ready[blockIdx.x] = 1;
  }
  {
    WL_REGION("C");
#pragma unroll
    for (int i = 0; i < 8; ++i) out[(blockIdx.x * 8 + i) * 256 + threadIdx.x] = values[i] + before;
  }
}

/* A small table per thread, indexed by data (in local memory) or by constants (in registers). */
extern "C" __global__ void __launch_bounds__(128) thread_tables(const int* in, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  float table[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) table[i] = i + threadIdx.x;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("step");
    const int shift = in[round];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
#if REPAIRED
      table[i] = fmaf(table[(i + 1) % 32], 0.5f, shift);
#else
      const int at = (i + shift) & 31;
      table[at] = fmaf(table[(at + 1) & 31], 0.5f, shift);
#endif
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) sum += table[i];
  out[blockIdx.x * 128 + threadIdx.x] = sum;
}

/* One sum of everything: an addition to memory by every thread, or by one of each block. */
extern "C" __global__ void __launch_bounds__(256) one_sum(const float* in, float* out, int each, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float parts[8];
#pragma unroll 1
  for (int i = 0; i < each; ++i) {
    float value;
    {
      WL_REGION("get");
      value = in[(blockIdx.x * each + i) * 256 + threadIdx.x];
    }
    WL_REGION("put");
#if REPAIRED
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < 8; ++warp) value += parts[warp];
      atomicAdd(out, value);
    }
    __syncthreads();
#else
    // Each lane adds by itself: a warp does not combine what it does not know to be one address.
    atomicAdd(out + (value < 0 ? 1 + threadIdx.x : 0), value);
    (void)parts;
#endif
  }
}

/* Independent chains per warp with a barrier of the block, or of the warp, after each step. */
extern "C" __global__ void __launch_bounds__(256) warp_chains(const int* steps, float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int warp = threadIdx.x / 32;
  float x = threadIdx.x * 1e-3f;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    {
      WL_REGION("do");
      const int count = steps[(round * 8 + warp) % 64];
#pragma unroll 1
      for (int i = 0; i < count; ++i) x = fmaf(x, 0.999f, 0.25f);
    }
    WL_REGION("sync");
#if REPAIRED
    __syncwarp();
#else
    __syncthreads();
#endif
  }
  out[blockIdx.x * 256 + threadIdx.x] = x;
}

/* Exponentials of independent values: the special function units are busy. Nothing to repair. */
extern "C" __global__ void __launch_bounds__(256) powers(float* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = -1e-3f * (threadIdx.x + i);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("step");
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[i]) : "f"(-x[i]));
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x[i];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

/* Random reads of a large table, many per thread one after the other; shared memory decides how many blocks fit. */
extern "C" __global__ void __launch_bounds__(128)
    random_walk(const int* table, int* out, int mask, int steps, wl::Buffer prof) {
  wl::Kernel k(prof);
  extern __shared__ int space[];
  int at = (blockIdx.x * 128 + threadIdx.x) * 7919 & mask;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    WL_REGION("hop on");
    at = (table[at] + step * 40503) & mask;
  }
  if (at < 0) space[0] = at;
  out[blockIdx.x * 128 + threadIdx.x] = at;
}

/* A copy with many wide loads in flight. Nothing to repair. */
extern "C" __global__ void __launch_bounds__(256) wide_copy(const float4* in, float4* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  float4 held[4];
  const int at = blockIdx.x * 1024 + threadIdx.x;
  {
    WL_REGION("X");
#pragma unroll
    for (int i = 0; i < 4; ++i) held[i] = in[at + 256 * i];
  }
  WL_REGION("Y");
#pragma unroll
  for (int i = 0; i < 4; ++i) out[at + 256 * i] = held[i];
}
