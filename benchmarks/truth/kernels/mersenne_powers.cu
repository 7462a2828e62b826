// Powers modulo the prime 2^31 - 1 by squaring and multiplying, four numbers per thread: bound by arithmetic.
#include <warplens.cuh>

constexpr unsigned PRIME = 0x7fffffff;
constexpr int MANY = 4;

__device__ __forceinline__ unsigned times(unsigned a, unsigned b) {
  const unsigned long long product = static_cast<unsigned long long>(a) * b;
  const unsigned sum = static_cast<unsigned>(product & PRIME) + static_cast<unsigned>(product >> 31);
  return min(sum, sum - PRIME);
}

extern "C" __global__ void __launch_bounds__(256)
    mersenne_powers(const unsigned* in, const unsigned* exponents, unsigned* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int first = blockIdx.x * 256 * MANY + threadIdx.x;
  unsigned value[MANY];
  {
    WL_REGION("get");
#pragma unroll
    for (int i = 0; i < MANY; ++i) value[i] = in[first + i * 256];
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    WL_REGION("power");
    const unsigned exponent = exponents[round];
    unsigned power[MANY] = {1, 1, 1, 1};
#pragma unroll 1
    for (int bit = 30; bit >= 0; --bit) {
#pragma unroll
      for (int i = 0; i < MANY; ++i) power[i] = times(power[i], power[i]);
      if (exponent >> bit & 1) {
#pragma unroll
        for (int i = 0; i < MANY; ++i) power[i] = times(power[i], value[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < MANY; ++i) value[i] = power[i];
  }
  WL_REGION("put");
#pragma unroll
  for (int i = 0; i < MANY; ++i) out[first + i * 256] = value[i];
}
