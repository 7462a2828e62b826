// The recording path of warplens.cuh in plain C++: the same state and the same stores, one std::thread per CUDA thread.
// Included by warplens_device.h in place of warplens_ptx.h when WARPLENS_SHIM is defined.
#pragma once
#include <chrono>
#include <cstring>

#include "cuda_shim.h"

#define WL_CLOCK_NAME_ "cpu"

extern "C" char __executable_start, edata;

namespace wl {
namespace detail {

struct Sizes {
  unsigned capacity, stride, tracks, per_block;
};
struct State {
  unsigned at, high, end, count, lead;
};
inline thread_local State state{};

inline void put(unsigned long long at, const void* data, unsigned size) {
  std::memcpy(reinterpret_cast<void*>(at), data, size);
}
inline Sizes load_sizes(Buffer buffer, bool wanted = true) {
  Sizes s{};
  if (wanted) std::memcpy(&s, reinterpret_cast<const void*>(buffer.address + WL_BUFFER_CAPACITY_AT), sizeof s);
  return s;
}
inline void settle() {}
template <unsigned At>
inline void store(unsigned long long base, unsigned v, bool wanted = true) {
  if (wanted) put(base + At, &v, 4);
}
template <unsigned At>
inline void store(unsigned long long base, unsigned a, unsigned b, unsigned c, unsigned d, bool wanted) {
  const unsigned v[4] = {a, b, c, d};
  if (wanted) put(base + At, v, 16);
}
template <unsigned At>
inline void store(unsigned long long base, unsigned long long a, unsigned long long b, bool wanted = true) {
  const unsigned long long v[2] = {a, b};
  if (wanted) put(base + At, v, 16);
}
inline void store64(unsigned long long at, unsigned long long v) { put(at, &v, 8); }
inline unsigned long long globaltimer() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}
inline unsigned long long clock64_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline unsigned sm_id() { return shim::block_number % 4; }
inline unsigned vote(bool condition) { return shim::ballot(condition); }
inline unsigned first_lane() { return 0; }
inline unsigned long long double_bits(double v) {
  unsigned long long bits;
  std::memcpy(&bits, &v, 8);
  return bits;
}
// The program's own data stands for the module's constants, but no linker orders it: the names are picked out of it.
inline void send_names(Buffer buffer) {
  unsigned long long to;
  std::memcpy(&to, reinterpret_cast<const void*>(buffer.address + WL_BUFFER_NAMES_AT), 8);
  if (!to) return;
  const unsigned long long magic = WL_NAME_MAGIC, end = reinterpret_cast<unsigned long long>(&edata);
  unsigned size = 0;
  for (auto at = reinterpret_cast<unsigned long long>(&__executable_start); at + WL_MAX_NAME <= end; at += 8) {
    unsigned short length;
    if (std::memcmp(reinterpret_cast<const void*>(at), &magic, 8) != 0) continue;
    std::memcpy(&length, reinterpret_cast<const void*>(at + 16), 2);
    const unsigned whole = (WL_NAME_BYTES + length + 7) / 8 * 8;
    if (length == 0 || size + whole > WL_NAMES_BYTES || whole > WL_MAX_NAME) continue;
    put(to + size, reinterpret_cast<const void*>(at), whole);
    size += whole;
  }
  store<WL_BUFFER_NAMES_SIZE_AT>(buffer.address, size);
}

inline void declare() {}
inline State save() { return state; }
inline void restore(const State& s) { state = s; }
inline bool leading() { return state.lead; }

inline unsigned high_of(Buffer buffer, unsigned low) {
  return static_cast<unsigned>(buffer.address >> 32) + (low < static_cast<unsigned>(buffer.address));
}
inline void open(Buffer buffer, unsigned low, unsigned capacity, bool lead) {
  const unsigned end = low + capacity * WL_SLOT_BYTES;
  state = {low, high_of(buffer, low), end, 0, lead && end >= low};
#if WARPLENS_RING
  state.end = (capacity ? (1u << (31 - __builtin_clz(capacity))) - 1 : 0) * WL_SLOT_BYTES;
#endif
}
inline unsigned long long slot() {
#if WARPLENS_RING
  return static_cast<unsigned long long>(state.high) << 32 | ((state.count & state.end) + state.at);
#else
  return static_cast<unsigned long long>(state.high) << 32 | state.at;
#endif
}
inline void next() {
#if WARPLENS_RING
  state.count += WL_SLOT_BYTES;
#else
  state.at = state.at + WL_SLOT_BYTES < state.end ? state.at + WL_SLOT_BYTES : state.end;
  ++state.count;
#endif
}
inline void record_word(unsigned word) {
  const unsigned v[2] = {word, static_cast<unsigned>(clock64_now())};
  if (state.lead) put(slot(), v, 8);
  next();
}
template <unsigned Word>
inline void record() {
  record_word(Word);
}
inline void record_payload(unsigned word, unsigned long long payload) {
  const unsigned long long first = slot();
  next();
#if !WARPLENS_RING
  if (state.at == state.end) payload = 0;
#endif
  if (state.lead) put(first, &payload, 8);
  record_word(word);
}

struct Cursor {
  unsigned long long slots;
  unsigned written;
};
inline Cursor cursor(Buffer buffer) {
#if WARPLENS_RING
  return {static_cast<unsigned long long>(high_of(buffer, state.at)) << 32 | state.at, state.count / WL_SLOT_BYTES};
#else
  unsigned start = state.at - state.count * WL_SLOT_BYTES;
  if (state.at == state.end) start = state.end - load_sizes(buffer).capacity * WL_SLOT_BYTES;
  return {static_cast<unsigned long long>(high_of(buffer, start)) << 32 | start, state.count};
#endif
}

}  // namespace detail
}  // namespace wl
