// The second half of examples/attention/element.cuh on the CPU: conversions, and the warp's collective instructions as
// exchanges between the threads of a warp. Blocks run one after another, so a table per warp serves all of them.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda_shim.h"

#define UNROLL
#define UNROLL_4
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(attention_shim::shared)

namespace attention_shim {
alignas(16) inline unsigned char shared[256 << 10];
struct Slot {
  uint32_t word[8];
  const void* pointer;
};
inline Slot slots[32][32];  // of each warp's lanes

// What every lane of this warp gives; the function sees all of them before any lane goes on.
template <class Use>
auto exchange(const Slot& mine, Use use) {
  Slot(&warp)[32] = slots[(threadIdx.x + threadIdx.y * blockDim.x) / 32];
  warp[shim::lane] = mine;
  shim::ballot(true);
  const auto result = use(warp);
  shim::ballot(true);
  return result;
}
inline float low(uint32_t both, half_t) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(both))); }
inline float low(uint32_t both, bfloat_t) { return std::bit_cast<float>(both << 16); }
}  // namespace attention_shim

inline float to_float(float x) { return x; }
inline float to_float(half_t x) { return attention_shim::low(x.bits, x); }
inline float to_float(bfloat_t x) { return attention_shim::low(x.bits, x); }
inline void from_float(float& to, float x) { to = x; }
inline void from_float(half_t& to, float x) { to.bits = std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }
inline void from_float(bfloat_t& to, float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  to.bits = static_cast<uint16_t>(std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <class T>
uint32_t pack(T, float first, float second) {
  T a, b;
  from_float(a, first), from_float(b, second);
  return a.bits | static_cast<uint32_t>(b.bits) << 16;
}

inline float shuffle_xor(float x, int mask) {
  const attention_shim::Slot mine{{std::bit_cast<uint32_t>(x)}, nullptr};
  return attention_shim::exchange(mine, [&](const auto& warp) { return std::bit_cast<float>(warp[shim::lane ^ mask].word[0]); });
}

template <bool Transposed>
void load_four(unsigned (&to)[4], const void* row) {
  struct Four {
    uint32_t of[4];
  };
  const auto found = attention_shim::exchange({{}, row}, [](const auto& warp) {
    Four out;
    const unsigned group = shim::lane / 4, pair = shim::lane % 4 * 2;
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      uint16_t half[2];
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned from = Transposed ? pair + i : group, column = Transposed ? group : pair + i;
        std::memcpy(&half[i], static_cast<const unsigned char*>(warp[matrix * 8 + from].pointer) + 2 * column, 2);
      }
      out.of[matrix] = half[0] | static_cast<uint32_t>(half[1]) << 16;
    }
    return out;
  });
  std::memcpy(to, found.of, sizeof to);
}
inline void load_matrices(unsigned (&to)[4], const void* row) { load_four<false>(to, row); }
inline void load_matrices_transposed(unsigned (&to)[4], const void* row) { load_four<true>(to, row); }

template <class T>
void multiply_add(T type, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  attention_shim::exchange({{a[0], a[1], a[2], a[3], b0, b1}, nullptr}, [&](const auto& warp) {
    const auto part = [&](uint32_t word, unsigned k) { return attention_shim::low(k % 2 ? word >> 16 : word & 0xffff, type); };
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = shim::lane / 4 + i / 2 * 8, column = shim::lane % 4 * 2 + i % 2;
      for (unsigned k = 0; k < 16; ++k) {
        const auto& left = warp[row % 8 * 4 + k % 8 / 2];
        const auto& right = warp[column * 4 + k % 8 / 2];
        c[i] += part(left.word[k / 8 * 2 + row / 8], k) * part(right.word[4 + k / 8], k);
      }
    }
    return 0;
  });
}

inline void copy16(void* to, const void* from, unsigned bytes) {
  std::memset(to, 0, 16);
  std::memcpy(to, from, bytes);
}
inline void copies_end() {}
template <int Pending>
void copies_wait() {}
inline float power_of_two(float x) { return std::exp2(x); }
inline unsigned read_now(const unsigned* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
inline void write_now(unsigned* at, unsigned value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
