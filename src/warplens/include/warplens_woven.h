// Marks as comments in PTX, `// @warplens B #id`, which the weaver turns into records after compilation. The comment of
// a wl::Kernel names the register that holds its buffer, for `warplens nvcc`. A leader that cannot be woven leaves the
// word `direct`, and the source is then compiled with warplens_device.h instead.
#ifndef WARPLENS_WOVEN_H
#define WARPLENS_WOVEN_H

#if WARPLENS_RING
#define WL_MODE_TEXT_ "ring"
#else
#define WL_MODE_TEXT_ "stop"
#endif

namespace wl {

__device__ __forceinline__ When when(bool condition) { return When{condition}; }

template <class Leader = PerWarp>
struct Kernel {
  __device__ __forceinline__ explicit Kernel(Buffer, Leader = Leader()) { asm volatile("// @warplens-kernel direct"); }
};
template <>
struct Kernel<PerWarp> {
  __device__ __forceinline__ explicit Kernel(Buffer buffer, PerWarp = PerWarp()) {
    asm volatile("// @warplens-kernel %0 " WL_MODE_TEXT_ ::"l"(buffer.address));
  }
};

// The weaver handles functions that are not inlined by itself.
struct Link {};
struct Callee {
  __device__ __forceinline__ explicit Callee(Link&) {}
};

namespace detail {

// One comment per kind of mark, chosen by type: without optimisation, an `if` would leave the comments of all kinds.
template <unsigned Kind>
struct Comment;
#define WL_COMMENT_(kind, letter)                                                                    \
  template <>                                                                                        \
  struct Comment<kind> {                                                                             \
    template <unsigned Id>                                                                           \
    static __device__ __forceinline__ void leave() {                                                 \
      asm volatile("// @warplens " letter " #%0" ::"n"(Id) : "memory");                              \
    }                                                                                                \
    template <unsigned Id>                                                                           \
    static __device__ __forceinline__ void leave(unsigned tag) {                                     \
      asm volatile("// @warplens " letter " #%0 %1" ::"n"(Id), "r"(tag) : "memory");                 \
    }                                                                                                \
  };
WL_COMMENT_(WL_KIND_BEGIN, "B")
WL_COMMENT_(WL_KIND_END, "E")
WL_COMMENT_(WL_KIND_INSTANT, "I")
WL_COMMENT_(WL_KIND_ASYNC_BEGIN, "A")
WL_COMMENT_(WL_KIND_ASYNC_END, "Z")
#undef WL_COMMENT_

template <unsigned Word>
__device__ __forceinline__ void record() {
  Comment<(Word & (1u << WL_REGION_SHIFT) - 1)>::template leave<(Word >> WL_REGION_SHIFT)>();
}

#define WL_VALUE_OF_(type, letter, name)                                                               \
  template <unsigned Word>                                                                             \
  __device__ __forceinline__ void number_value(type v) {                                               \
    asm volatile("// @warplens V #%0 " name " %1" ::"n"(Word >> WL_REGION_SHIFT), letter(v) : "memory"); \
  }
WL_VALUE_OF_(int, "r", "s32")
WL_VALUE_OF_(unsigned, "r", "u32")
WL_VALUE_OF_(long, "l", "s64")
WL_VALUE_OF_(unsigned long, "l", "u64")
WL_VALUE_OF_(long long, "l", "s64")
WL_VALUE_OF_(unsigned long long, "l", "u64")
WL_VALUE_OF_(float, "f", "f32")
WL_VALUE_OF_(double, "d", "f64")
#undef WL_VALUE_OF_

template <unsigned Word, class Type>
__device__ __forceinline__ void value(Type v) {
  number_value<Word>(number(v));
}

template <unsigned Word, unsigned Operation>
__device__ __forceinline__ void barrier(unsigned which, unsigned parity) {
  constexpr unsigned id = Word >> WL_REGION_SHIFT;
  if constexpr (Operation == WL_BARRIER_WAIT)
    asm volatile("// @warplens S #%0 wait u32:%1 %2 - -" ::"n"(id), "r"(which), "r"(parity) : "memory");
  if constexpr (Operation == WL_BARRIER_ARRIVE)
    asm volatile("// @warplens S #%0 arrive u32:%1 - - -" ::"n"(id), "r"(which) : "memory");
  if constexpr (Operation == WL_BARRIER_COPY)
    asm volatile("// @warplens S #%0 copy u32:%1 - - -" ::"n"(id), "r"(which) : "memory");
  if constexpr (Operation == WL_BARRIER_EVENT_START)
    asm volatile("// @warplens S #%0 event_start u32:%1 - - -" ::"n"(id), "r"(which) : "memory");
  if constexpr (Operation == WL_BARRIER_EVENT_END)
    asm volatile("// @warplens S #%0 event_end u32:%1 - - -" ::"n"(id), "r"(which) : "memory");
}

template <unsigned Word>
__device__ __forceinline__ void async(unsigned tag) {
  Comment<(Word & (1u << WL_REGION_SHIFT) - 1)>::template leave<(Word >> WL_REGION_SHIFT)>(tag);
}

__device__ __forceinline__ void anchor() { asm volatile("// @warplens T" ::: "memory"); }

template <unsigned Word, class Index>
__device__ __forceinline__ void iteration(Index index) {
  value<Word>(index);
  if ((index & 63) == 0) anchor();
}

// The weaver adds the warp barrier after every block barrier.
__device__ __forceinline__ void settle() {}

}  // namespace detail
}  // namespace wl

#include "warplens_marks.h"

#endif  // WARPLENS_WOVEN_H
