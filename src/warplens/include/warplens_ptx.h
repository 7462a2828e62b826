// The recording path in PTX. A kernel's write position is kept in PTX registers that open() declares in the kernel's
// first block. Every later asm of that function can use them by name, so user code need not pass anything along.
//
// One record is a clock read, one predicated 8-byte store, one add-and-clamp of the low address word, and a count
// that the compiler folds over straight-line code. A full track keeps storing into its spare slots, because the result
// of a clamp is ready after 5 cycles, that of a bounds predicate after 13.
//
// A store reads its registers late, and until then nothing may write to them: a store at the begin of a region would
// make the region's own instructions wait. So a begin only claims its slot and reads the clock; the next mark stores
// its record, after its own clock read. Which marks find a record held is known to ptxas wherever one path leads there.
//
// Of the stores of a mark, the last one is that of wl_clock, and a begin reads its clock into the same register: before
// that read, it waits until all stores have read their registers. The predicate of that read, which is false in the
// threads that do not record, is what keeps ptxas from taking another register.
#ifndef WARPLENS_PTX_H
#define WARPLENS_PTX_H

// ptxas names this register in its error when a mark is compiled into a function without a wl::Kernel.
#define WL_AT_ "mark_outside_a_kernel_with_wl_Kernel_or_in_a_function_that_is_not_inlined_see_wl_Link"
// ptxas names this otherwise unused register in its error when one function has two recordings.
#define WL_ONCE_ "two_wl_Kernels_in_one_function_or_a_wl_Callee_in_one_that_is_inlined"
#define WL_HIGH_ "wl_high"
#define WL_END_ "wl_end"
#define WL_COUNT_ "wl_count"
#define WL_LEAD_ "wl_lead"
// The record of a begin that is not stored yet: whether there is one, its first word, its clock, and the low word of
// the address of its slot.
#define WL_HELD_ "wl_held"
#define WL_WORD_ "wl_word"
#define WL_CLOCK_ "wl_clock"
#define WL_PLACE_ "wl_place"
#define WL_NONE_HELD_ "setp.ne.u32 " WL_HELD_ ", 0, 0;\n\t"

namespace wl {
namespace detail {

struct Sizes {
  unsigned capacity, stride, tracks, per_block;
};

#define WL_WANTED_(operand) "{\n\t.reg .pred wanted;\n\tsetp.ne.u32 wanted, " operand ", 0;\n\t"
// Loads the sizes from the launch header; zeros if they are not wanted.
__device__ __forceinline__ Sizes load_sizes(Buffer buffer, bool wanted = true) {
  Sizes s;
  asm(WL_WANTED_("%5")
      "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n\t"
      "@wanted ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4+%6];\n\t}"
      : "=&r"(s.capacity), "=&r"(s.stride), "=&r"(s.tracks), "=&r"(s.per_block)
      : "l"(buffer.address), "r"(static_cast<unsigned>(wanted)), "n"(WL_BUFFER_CAPACITY_AT));
  return s;
}
// Stores at a fixed offset from `base`; an immediate offset takes no register.
template <unsigned At>
__device__ __forceinline__ void store(unsigned long long base, unsigned v, bool wanted = true) {
  asm volatile(WL_WANTED_("%2") "@wanted st.global.u32 [%0+%3], %1;\n\t}" ::"l"(base), "r"(v),
               "r"(static_cast<unsigned>(wanted)), "n"(At) : "memory");
}
template <unsigned At>
__device__ __forceinline__ void store(unsigned long long base, unsigned a, unsigned b, unsigned c, unsigned d,
                                      bool wanted) {
  asm volatile(WL_WANTED_("%5") "@wanted st.global.v4.u32 [%0+%6], {%1, %2, %3, %4};\n\t}" ::"l"(base), "r"(a), "r"(b),
               "r"(c), "r"(d), "r"(static_cast<unsigned>(wanted)), "n"(At) : "memory");
}
template <unsigned At>
__device__ __forceinline__ void store(unsigned long long base, unsigned long long a, unsigned long long b,
                                      bool wanted = true) {
  asm volatile(WL_WANTED_("%3") "@wanted st.global.v2.u64 [%0+%4], {%1, %2};\n\t}" ::"l"(base), "l"(a), "l"(b),
               "r"(static_cast<unsigned>(wanted)), "n"(At) : "memory");
}
__device__ __forceinline__ void store64(unsigned long long at, unsigned long long v) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ __forceinline__ unsigned long long globaltimer() {
  unsigned long long v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
  return v;
}
__device__ __forceinline__ unsigned long long clock64_now() {
  unsigned long long v;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(v)::"memory");
  return v;
}
// Holds the warp at the preceding block barrier. The GPU issues instructions that access no memory, including clock
// reads, before a block barrier takes effect. All lanes have passed the barrier, so a warp barrier is free.
__device__ __forceinline__ void settle() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
__device__ __forceinline__ unsigned sm_id() {
  unsigned v;
  asm("mov.u32 %0, %%smid;" : "=r"(v));
  return v;
}
__device__ __forceinline__ unsigned vote(bool condition) { return __ballot_sync(__activemask(), condition); }
__device__ __forceinline__ unsigned first_lane() { return __ffs(static_cast<int>(__activemask())) - 1; }
// A ring's size in slots is a power of two: the largest that fits.
__device__ __forceinline__ unsigned ring_slots(unsigned capacity) { return capacity ? 1u << (31 - __clz(capacity)) : 1u; }
__device__ __forceinline__ unsigned long long double_bits(double v) {
  return static_cast<unsigned long long>(__double_as_longlong(v));
}
// Copies the region names to the address that the host requested, if any; the first track does this after its exit.
// The host cannot, because drivers place a module's variables separately and copy none of unknown size. In the kernel,
// constant memory is contiguous from address 0.
__device__ __forceinline__ void send_names(Buffer buffer) {
  unsigned long long to, end;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(to) : "l"(buffer.address + WL_BUFFER_NAMES_AT) : "memory");
  if (!to) return;
  asm("cvta.to.const.u64 %0, %1;" : "=l"(end) : "l"(&names_end_));
  store<WL_BUFFER_NAMES_SIZE_AT>(buffer.address, static_cast<unsigned>(end));
#pragma unroll 1
  for (unsigned from = 0; from < static_cast<unsigned>(end); from += 8 * 2, to += 8 * 2) {
    unsigned long long word[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) asm("ld.const.u64 %0, [%1];" : "=l"(word[i]) : "l"(from + 8ull * i));
    store<0>(to, word[0], word[1]);
  }
}

// Declares the registers of this function's recording.
__device__ __forceinline__ void declare() {
  asm volatile(".reg .pred " WL_ONCE_ ", " WL_LEAD_ ", " WL_HELD_ ";\n\t"
               ".reg .u32 " WL_AT_ ", " WL_HIGH_ ", " WL_END_ ", " WL_COUNT_ ", " WL_WORD_ ", " WL_CLOCK_ ", " WL_PLACE_ ";\n\t"
               "mov.u32 " WL_WORD_ ", 0; mov.u32 " WL_CLOCK_ ", 0; mov.u32 " WL_PLACE_ ", 0;\n\t" WL_NONE_HELD_);
}

// The high word of an address in the buffer, which is never larger than 4 GiB. It is recomputed where needed, so that
// no register holds it from the last mark to the exit.
__device__ __forceinline__ unsigned high_of(Buffer buffer, unsigned low) {
  return static_cast<unsigned>(buffer.address >> 32) + (low < static_cast<unsigned>(buffer.address));
}

// Starts a track whose slots start at `low`. If low + size wraps, the track crosses a 4 GiB boundary, which the host
// never allows; it then records nothing rather than write elsewhere.
__device__ __forceinline__ void open(Buffer buffer, unsigned low, unsigned capacity, bool lead) {
  const unsigned end = low + capacity * WL_SLOT_BYTES;
  declare();
  asm volatile(
      "mov.u32 " WL_AT_ ", %0; mov.u32 " WL_HIGH_ ", %1; mov.u32 " WL_END_ ", %2; mov.u32 " WL_COUNT_ ", 0;\n\t"
      "setp.ne.u32 " WL_LEAD_ ", %3, 0;" ::"r"(low), "r"(high_of(buffer, low)),
#if WARPLENS_RING
      "r"((ring_slots(capacity) - 1) * WL_SLOT_BYTES),
#else
      "r"(end),
#endif
      "r"(static_cast<unsigned>(lead && end >= low)));
}

#if WARPLENS_RING
// wl_end is the mask and wl_count the bytes written; the position is wl_count & wl_end, added to the fixed start.
#define WL_SLOT_(low) "and.b32 " low ", " WL_COUNT_ ", " WL_END_ "; add.u32 " low ", " low ", " WL_AT_ ";\n\t"
#define WL_NEXT_ "add.u32 " WL_COUNT_ ", " WL_COUNT_ ", 8;\n\t"
#else
#define WL_SLOT_(low) "mov.u32 " low ", " WL_AT_ ";\n\t"
#define WL_NEXT_ \
  "add.u32 " WL_AT_ ", " WL_AT_ ", 8; min.u32 " WL_AT_ ", " WL_AT_ ", " WL_END_ "; add.u32 " WL_COUNT_ ", " WL_COUNT_ ", 1;\n\t"
#endif

#ifndef WL_OP_
#define WL_OP_ "st.global.cs.v2.u32"
#endif
#define WL_PUT_(guard, low, word, clock) \
  "mov.b64 a, {" low ", " WL_HIGH_ "}; @" guard " " WL_OP_ " [a], {" word ", " clock "};\n\t"
#define WL_PUT_LAST_ WL_PUT_(WL_LEAD_, WL_PLACE_, WL_WORD_, WL_CLOCK_) WL_NONE_HELD_

#define WL_FLUSH_                                                                               \
  "{\n\t.reg .b64 a; .reg .pred held;\n\tand.pred held, " WL_LEAD_ ", " WL_HELD_ ";\n\t" \
  WL_PUT_("held", WL_PLACE_, WL_WORD_, WL_CLOCK_) WL_NONE_HELD_ "}\n\t"
// All that takes time stands before the clock read.
#define WL_BEGIN_                                                                                              \
  "{\n\t" WL_FLUSH_ WL_SLOT_(WL_PLACE_) WL_NEXT_ "mov.u32 " WL_WORD_ ", %0; setp.eq.u32 " WL_HELD_ ", 0, 0;\n\t" \
  "@" WL_LEAD_ " mov.u32 " WL_CLOCK_ ", %%clock;\n\t}"

#define WL_RECORDING_                                                                                         \
  ".reg .u32 c, o; .reg .b64 a; .reg .pred held, free;\n\tand.pred held, " WL_LEAD_ ", " WL_HELD_ ";\n\t"       \
  "not.pred free, " WL_HELD_ "; and.pred free, free, " WL_LEAD_ ";\n\t"
// Reads the clock into a register of its own, which no earlier store can make it wait for. If no record is held, this
// mark's will be stored from wl_clock. The prmt is a copy: ptxas would read the clock into the target of a mov.
#define WL_READ_CLOCK_ WL_RECORDING_ "mov.u32 c, %%clock;\n\t" "@free prmt.b32 " WL_CLOCK_ ", c, c, 0x7654;\n\t"
// Saves the copy, and may wait for the store of a mark right before.
#define WL_READ_CLOCK_LATE_ \
  WL_RECORDING_ "mov.u32 c, 0; @" WL_HELD_ " mov.u32 c, %%clock; @free mov.u32 " WL_CLOCK_ ", %%clock;\n\t"
// Stores the record of this mark and, last, the one that is held; else this mark's is the last.
#define WL_STORE_                                                                          \
  WL_SLOT_("o") WL_NEXT_ WL_PUT_("held", "o", "%0", "c")                                   \
  "@!" WL_HELD_ " mov.u32 " WL_PLACE_ ", o; @!" WL_HELD_ " mov.u32 " WL_WORD_ ", %0;\n\t" WL_PUT_LAST_
#if WARPLENS_RING
#define WL_STORE_NEXT_ WL_STORE_
#else
// The same where the two slots are next to each other: one address serves both.
#define WL_STORE_NEXT_                                                                                   \
  "@!" WL_HELD_ " mov.u32 " WL_PLACE_ ", " WL_AT_ "; mov.b64 a, {" WL_PLACE_ ", " WL_HIGH_ "};\n\t"      \
  "@held " WL_OP_ " [a+8], {%0, c}; @!" WL_HELD_ " mov.u32 " WL_WORD_ ", %0;\n\t" WL_PUT_LAST_ WL_NEXT_
#endif
#define WL_RECORD_ "{\n\t" WL_READ_CLOCK_ WL_STORE_NEXT_ "}"
#define WL_RECORD_LATE_ "{\n\t" WL_READ_CLOCK_LATE_ WL_STORE_NEXT_ "}"

template <unsigned Word>
__device__ __forceinline__ void record() {
  if ((Word & 7u) == WL_KIND_BEGIN) {
    asm volatile(WL_BEGIN_ ::"n"(Word) : "memory");
  } else if ((Word & 7u) == WL_KIND_INSTANT) {
    asm volatile(WL_RECORD_LATE_ ::"n"(Word) : "memory");
  } else {
    asm volatile(WL_RECORD_ ::"n"(Word) : "memory");
  }
}
__device__ __forceinline__ void record_word(unsigned word) { asm volatile(WL_RECORD_ ::"r"(word) : "memory"); }
// Stores the record of a begin that is still held.
__device__ __forceinline__ void flush() { asm volatile(WL_FLUSH_ ::: "memory"); }

// Stores a payload and its record. If only one slot is left, it stays empty and both count as lost, because a payload
// without its record could be read as a record. The clock is read first. After the store it would wait until the store
// has read its registers, tens of cycles on a busy SM, and an anchor's timer would be too early by as much.
__device__ __forceinline__ void record_payload(unsigned word, unsigned long long payload) {
  asm volatile(
      "{\n\t.reg .u32 p; .reg .b64 v; .reg .pred fits;\n\t" WL_READ_CLOCK_ WL_SLOT_("p") WL_NEXT_
#if WARPLENS_RING
      "mov.b64 v, %1;\n\t"
#else
      "setp.ne.u32 fits, " WL_AT_ ", " WL_END_ "; selp.b64 v, %1, 0, fits;\n\t"
#endif
      "mov.b64 a, {p, " WL_HIGH_ "}; @" WL_LEAD_ " st.global.cs.u64 [a], v;\n\t" WL_STORE_
      "}" ::"r"(word), "l"(payload) : "memory");
}

__device__ __forceinline__ bool leading() {
  unsigned lead;
  asm volatile("selp.u32 %0, 1, 0, " WL_LEAD_ ";" : "=r"(lead));
  return lead;
}

struct State {
  unsigned at, high, end, count, lead;
};

__device__ __forceinline__ State save() {
  State s;
  flush();
  asm volatile("mov.u32 %0, " WL_AT_ "; mov.u32 %1, " WL_HIGH_ "; mov.u32 %2, " WL_END_ "; mov.u32 %3, " WL_COUNT_
               "; selp.u32 %4, 1, 0, " WL_LEAD_ ";"
               : "=r"(s.at), "=r"(s.high), "=r"(s.end), "=r"(s.count), "=r"(s.lead));
  return s;
}
__device__ __forceinline__ void restore(const State& s) {
  asm volatile("mov.u32 " WL_AT_ ", %0; mov.u32 " WL_HIGH_ ", %1; mov.u32 " WL_END_ ", %2; mov.u32 " WL_COUNT_
               ", %3; setp.ne.u32 " WL_LEAD_ ", %4, 0;" ::"r"(s.at), "r"(s.high), "r"(s.end), "r"(s.count), "r"(s.lead));
}

struct Cursor {
  unsigned long long slots;  // where the track's slots start
  unsigned written;
};

// The start of this track, computed from the write position so that no register holds it during the kernel.
__device__ __forceinline__ Cursor cursor(Buffer buffer) {
  const State s = save();
#if WARPLENS_RING
  const unsigned start = s.at, written = s.count / WL_SLOT_BYTES;
#else
  unsigned start = s.at - s.count * WL_SLOT_BYTES;
  const unsigned written = s.count;
  if (s.at == s.end) start = s.end - load_sizes(buffer).capacity * WL_SLOT_BYTES;
#endif
  return Cursor{static_cast<unsigned long long>(high_of(buffer, start)) << 32 | start, written};
}

}  // namespace detail
}  // namespace wl

#endif  // WARPLENS_PTX_H
