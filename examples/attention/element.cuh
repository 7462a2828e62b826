// Shared by the attention kernels: three element types and warp-level instructions. Needs no CUDA headers, so NVRTC can
// compile it on any machine. The g++ shim of the tests replaces the second half.
#pragma once

struct half_t {
  unsigned short bits;
};
struct bfloat_t {
  unsigned short bits;
};

#define DEVICE __device__ __forceinline__

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LOWEST = -3.0e38f;  // used as minus infinity, but subtracting it from itself gives 0, not NaN

#ifdef WARPLENS_SHIM
#include "attention_shim.h"
#else

#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define DYNAMIC_SHARED(type, name)                               \
  extern __shared__ __align__(16) unsigned char shared_bytes_[]; \
  type* const name = reinterpret_cast<type*>(shared_bytes_)

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(half_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
DEVICE float to_float(bfloat_t x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

DEVICE void from_float(float& to, float x) { to = x; }
DEVICE void from_float(half_t& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
DEVICE void from_float(bfloat_t& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }

// Two elements in one register, the first in the low half.
DEVICE unsigned pack(half_t, float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
DEVICE unsigned pack(bfloat_t, float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

DEVICE unsigned shared_address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

// Load four 8x8 matrices; lane i holds the address of row i % 8 of matrix i / 8.
DEVICE void load_matrices(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
DEVICE void load_matrices_transposed(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a * b for 16x16 and 16x8 matrices on the tensor cores.
DEVICE void multiply_add(half_t, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply_add(bfloat_t, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copy 16 bytes asynchronously from global to shared memory: `bytes` of them, the rest zero.
DEVICE void copy16(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
DEVICE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE unsigned read_now(const unsigned* at) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
DEVICE void write_now(unsigned* at, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

#endif

template <class T>
DEVICE T element(float x) {
  T made;
  from_float(made, x);
  return made;
}

DEVICE float larger(float a, float b) { return a > b ? a : b; }
DEVICE int smaller(int a, int b) { return a < b ? a : b; }

// Reduce over all lanes of a warp, or over groups of `Lanes` neighbours.
template <int Lanes = 32>
DEVICE float sum_of(float x) {
  for (int mask = Lanes / 2; mask; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
template <int Lanes = 32>
DEVICE float largest_of(float x) {
  for (int mask = Lanes / 2; mask; mask /= 2) x = larger(x, shuffle_xor(x, mask));
  return x;
}
