// Ways to write one record that were considered for warplens.cuh; HOW picks one. Included inside micro().
// State: a = address or index, h = high word, e = end or mask, c = count, p = leader.
#define R_ ".reg .u32 va, vh, ve, vc; .reg .u64 vb; .reg .pred vl, vp;"
#ifndef STORE
#define STORE "st.global.cs.v2.u32"
#endif
#define OPEN_(text) \
  auto open_variant = [](u64 slots, unsigned capacity, unsigned lead) __attribute__((always_inline)) { \
    asm volatile(R_ "setp.ne.u32 vl, %2, 0; mov.u64 vb, %0; mov.b64 {va, vh}, %0; mov.u32 vc, 0;" text ::"l"(slots), "r"(capacity), "r"(lead)); }
#define CLOSE_ auto close_variant = []() __attribute__((always_inline)) { unsigned v; asm volatile("xor.b32 %0, va, vc;" : "=r"(v)); return v; }
#define VARIANT_RECORD(word) asm volatile("{.reg .u32 c, o; .reg .u64 a; .reg .pred q;" BODY "}" ::"n"(word) : "memory")

#if HOW == 0    // index, bounds predicate in the record, 64-bit address by a wide multiply-add
OPEN_("mov.u32 va, 0; selp.u32 ve, %1, 0, vl;");
#define BODY "setp.lt.u32 q, va, ve; mad.wide.u32 a, va, 8, vb; mov.u32 c, %%clock; @q " STORE " [a], {%0, c}; add.u32 va, va, 1;"
#elif HOW == 1  // the same with the next record's predicate made after this one's store
OPEN_("mov.u32 va, 0; selp.u32 ve, %1, 0, vl; setp.lt.u32 vp, va, ve;");
#define BODY "mad.wide.u32 a, va, 8, vb; mov.u32 c, %%clock; @vp " STORE " [a], {%0, c}; add.u32 va, va, 1; setp.lt.u32 vp, va, ve;"
#elif HOW == 2  // index clamped to a spare slot
OPEN_("mov.u32 va, 0; mov.u32 ve, %1;");
#define BODY "min.u32 o, va, ve; mad.wide.u32 a, o, 8, vb; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 va, va, 1;"
#elif HOW == 3  // low address word with a bounds predicate made after the store
OPEN_("mad.lo.u32 ve, %1, 8, va; selp.u32 ve, ve, 0, vl; setp.lt.u32 vp, va, ve;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vp " STORE " [a], {%0, c}; add.u32 va, va, 8; setp.lt.u32 vp, va, ve;"
#elif HOW == 4  // low address word clamped, count apart: what the header does
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 5  // 64-bit pointer without any bound: not safe, the least a global store can cost
OPEN_("");
#define BODY "mov.u32 c, %%clock; @vl " STORE " [vb], {%0, c}; add.u64 vb, vb, 8;"
#elif HOW == 6  // as 4, store skipped by a branch instead of a predicate
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @!vl bra.uni DONE; " STORE " [a], {%0, c}; DONE: add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 7  // as 4, clamp before the store
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c};"
#elif HOW == 8  // as 4, predicated clock read
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; @vl mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 9  // ring of slots aligned to its size
OPEN_("mad.lo.u32 ve, %1, 8, -8;");
#define BODY "and.b32 o, vc, ve; add.u32 o, o, va; mov.b64 a, {o, vh}; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 vc, vc, 8;"
#elif HOW == 10  // as 4, without counting what does not fit
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 va, va, 8; min.u32 va, va, ve;"
#endif
CLOSE_;
