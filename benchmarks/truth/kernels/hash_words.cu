// Hashes counters with many rounds of integer arithmetic: bound by arithmetic, nothing to repair.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256) hash_words(unsigned* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  unsigned a = blockIdx.x * 256 + threadIdx.x, b = a * 0x9e3779b9u, c = ~a, d = a ^ 0x85ebca6bu;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("mix");
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      a += b, d = __funnelshift_l(d ^ a, d ^ a, 16);
      c += d, b = __funnelshift_l(b ^ c, b ^ c, 12);
      a += b, d = __funnelshift_l(d ^ a, d ^ a, 8);
      c += d, b = __funnelshift_l(b ^ c, b ^ c, 7);
    }
  }
  WL_REGION("emit");
  out[blockIdx.x * 256 + threadIdx.x] = a ^ b ^ c ^ d;
}
