// C[m,n] = A[m,k] B[n,k]^T, fp16 in, fp32 out: 128xBNx64 tiles (BN 128 or 256), four cp.async stages, two warp groups with wgmma.
// Four regions per k-step.
#include <warplens.cuh>

#define BM 128
#ifndef BN
#define BN 128
#endif
#define BK 64
#define STAGES 4
#define A_BYTES (BM * BK * 2)
#define STAGE_BYTES ((BM + BN) * BK * 2)

typedef unsigned long long u64;

__device__ __forceinline__ void copy16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// A tile of 128-byte rows, swizzled: eight rows are one group of 1024 bytes.
__device__ __forceinline__ u64 descriptor(unsigned at) {
  return (at & 0x3ffffu) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#if BN == 128
__device__ __forceinline__ void multiply(float (&d)[64], u64 a, u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b));
}
#else
__device__ __forceinline__ void multiply(float (&d)[128], u64 a, u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b));
}
#endif

extern "C" __global__ void __launch_bounds__(256, 1)
gemm(const unsigned short* a, const unsigned short* b, float* c, int m, int n, int k, wl::Buffer prof) {
  wl::Kernel recording(prof);
  extern __shared__ unsigned char memory[];
  const unsigned shared = (static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023) & ~1023u;
  const unsigned thread = threadIdx.x, lane = thread & 31, group = thread >> 7, warp = thread >> 5 & 3;
  const unsigned row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const int steps = k / BK;
  const auto fetch = [&](int step) {
    const unsigned at = shared + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (unsigned i = 0; i < BN / 32; ++i) {
      const unsigned row = (thread + i * 256) / 8, chunk = thread & 7, to = row * 128 + ((chunk ^ (row & 7)) << 4);
      if (i < BM / 32) copy16(at + to, a + static_cast<size_t>(row0 + row) * k + step * BK + chunk * 8);
      copy16(at + A_BYTES + to, b + static_cast<size_t>(column0 + row) * k + step * BK + chunk * 8);
    }
  };
  float sum[BN / 2] = {};
  for (int s = 0; s < STAGES - 2; ++s) {
    if (s < steps) fetch(s);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int step = 0; step < steps; ++step) {
    {
      WL_REGION("wait");
      asm volatile("cp.async.wait_group %0; fence.proxy.async.shared::cta;" ::"n"(STAGES - 3) : "memory");
      __syncthreads();
    }
    {
      WL_REGION("multiply");
      const unsigned at = shared + step % STAGES * STAGE_BYTES;
      const u64 left = descriptor(at + group * (A_BYTES / 2)), right = descriptor(at + A_BYTES);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < BK / 16; ++i) multiply(sum, left + i * 2, right + i * 2);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    {
      WL_REGION("fetch");
      if (step + STAGES - 2 < steps) fetch(step + STAGES - 2);
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
    {
      WL_REGION("drain");  // of the k-step before this one
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const size_t row = row0 + group * 64 + warp * 16 + lane / 4;
#pragma unroll
  for (unsigned j = 0; j < BN / 8; ++j) {
    const size_t column = column0 + j * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(c + row * n + column) = make_float2(sum[4 * j], sum[4 * j + 1]);
    *reinterpret_cast<float2*>(c + (row + 8) * n + column) = make_float2(sum[4 * j + 2], sum[4 * j + 3]);
  }
}
