// C[m,n] = A[m,k] B[n,k]^T, fp16 in, fp32 out: 128x128xBK tiles (BK 32 or 64), three cp.async stages, 8 warps with
// mma.sync. Four regions per k-step; with WHOLE the matrix product is one of them, so that no mark cuts through it.
#include <warplens.cuh>

#define BM 128
#define BN 128
#ifndef BK
#define BK 32
#endif
#define STAGES 3
#ifndef WHOLE
#define WHOLE 0
#endif

// 16-byte chunk `chunk` of row `row`, placed so that eight rows of a column of chunks meet no bank twice.
__device__ __forceinline__ unsigned place(unsigned row, unsigned chunk) {
  return BK == 32 ? row * 64 + ((chunk ^ (row >> 1 & 3)) << 4) : row * 128 + ((chunk ^ (row & 7)) << 4);
}
__device__ __forceinline__ void copy16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void load4(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(256, 2)
gemm(const unsigned short* a, const unsigned short* b, float* c, int m, int n, int k, wl::Buffer prof) {
  wl::Kernel recording(prof);
  extern __shared__ __align__(128) unsigned char tiles[];  // [stage][a, b][128][BK]
  const unsigned thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const unsigned row0 = blockIdx.y * BM, column0 = blockIdx.x * BN, warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(tiles));
  const unsigned stage_bytes = (BM + BN) * BK * 2;

  const auto fetch = [&](int step) {
    const unsigned at = shared + step % STAGES * stage_bytes;
#pragma unroll
    for (unsigned i = 0; i < BK / 16; ++i) {
      const unsigned row = (thread + i * 256) / (BK / 8), chunk = thread % (BK / 8);
      copy16(at + place(row, chunk), a + static_cast<size_t>(row0 + row) * k + step * BK + chunk * 8);
      copy16(at + BM * BK * 2 + place(row, chunk), b + static_cast<size_t>(column0 + row) * k + step * BK + chunk * 8);
    }
  };

  float sum[4][4][4] = {};
  const auto slice = [&](unsigned at, unsigned h) {
    unsigned fa[4][4], fb[2][4];
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) load4(fa[i], at + place(warp_row + i * 16 + (lane & 15), h * 2 + (lane >> 4)));
#pragma unroll
    for (unsigned j = 0; j < 2; ++j)
      load4(fb[j], at + BM * BK * 2 + place(warp_column + j * 16 + (lane & 7) + (lane >> 4) * 8, h * 2 + (lane >> 3 & 1)));
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) multiply(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
  };
  const auto half = [&](unsigned at, unsigned h) {
#pragma unroll
    for (unsigned i = 0; i < BK / 32; ++i) slice(at, h * (BK / 32) + i);
  };
  const int steps = k / BK;
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) fetch(s);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int step = 0; step < steps; ++step) {
#if WHOLE
    WL_REGION("step");
#endif
    {
      WL_REGION("wait");
      asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
      __syncthreads();
    }
    {
      WL_REGION("fetch");
      if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
    const unsigned at = shared + step % STAGES * stage_bytes;
#if WHOLE
    {
      WL_REGION("multiply");
      half(at, 0);
      half(at, 1);
    }
#else
    {
      WL_REGION("first half");
      half(at, 0);
    }
    {
      WL_REGION("second half");
      half(at, 1);
    }
#endif
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      const size_t row = row0 + warp_row + i * 16 + lane / 4, column = column0 + warp_column + j * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(c + row * n + column) = make_float2(sum[i][j][0], sum[i][j][1]);
      *reinterpret_cast<float2*>(c + (row + 8) * n + column) = make_float2(sum[i][j][2], sum[i][j][3]);
    }
}
