// Ways to write one record that were considered for warplens.cuh; HOW picks one. Included inside micro().
// State: a = address or index, h = high word, e = end or mask, c = count, p = leader.
#define R_ ".reg .u32 va, vh, ve, vc, vx, vy; .reg .u64 vb; .reg .pred vl, vp;"
#ifndef STORE
#define STORE "st.global.cs.v2.u32"
#endif
#define OPEN_(text) \
  auto open_variant = [](u64 slots, unsigned capacity, unsigned lead, u64 base, u64 offset) __attribute__((always_inline)) { \
    asm volatile(R_ "setp.ne.u32 vl, %2, 0; mov.u64 vb, %0; mov.b64 {va, vh}, %0; mov.u32 vc, 0;" text ::"l"(slots), "r"(capacity), "r"(lead), "l"(base), "l"(offset)); }
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
#elif HOW == 11  // begin held in a register, one 16-byte store at the end: no general header can know that the two are adjacent
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BEGIN_BODY "mov.u32 vx, %%clock;"
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl st.global.cs.v4.u32 [a], {1, vx, %0, c}; add.u32 va, va, 16; min.u32 va, va, ve; add.u32 vc, vc, 2;"
#elif HOW == 12  // begin held in a register, two 8-byte stores side by side at the end
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BEGIN_BODY "mov.u32 vx, %%clock;"
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl " STORE " [a], {1, vx}; @vl " STORE " [a+8], {%0, c}; add.u32 va, va, 16; min.u32 va, va, ve; add.u32 vc, vc, 2;"
#elif HOW == 13  // every second record stores 16 bytes, by a predicate that flips
OPEN_("mad.lo.u32 ve, %1, 8, va; setp.ne.u32 vp, 0, 0; mov.u32 vx, 0; mov.u32 vy, 0;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vp st.global.cs.v4.u32 [a+-8], {vx, vy, %0, c}; mov.u32 vx, %0; mov.u32 vy, c; xor.pred vp, vp, vl; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 14  // as 4, always into the same slot: what the stores cost without new lines
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 vc, vc, 1;"
#elif HOW == 15  // as 4, with a policy that keeps the lines in L2
OPEN_("mad.lo.u32 ve, %1, 8, va; createpolicy.fractional.L2::evict_last.b64 vb, 1.0;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl st.global.L2::cache_hint.v2.u32 [a], {%0, c}, vb; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 16  // uniform 64-bit base and a 32-bit offset, clamped: no register pair to form
OPEN_("mov.u64 vb, %3; cvt.u32.u64 va, %4; mad.lo.u32 ve, %1, 8, va;");
#define BODY "cvt.u64.u32 a, va; add.u64 a, a, vb; mov.u32 c, %%clock; @vl " STORE " [a], {%0, c}; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 17  // as 16, every second record stores 16 bytes
OPEN_("mov.u64 vb, %3; cvt.u32.u64 va, %4; mad.lo.u32 ve, %1, 8, va; setp.ne.u32 vp, 0, 0; mov.u32 vx, 0; mov.u32 vy, 0;");
#define BODY "cvt.u64.u32 a, va; add.u64 a, a, vb; mov.u32 c, %%clock; @vp st.global.cs.v4.u32 [a+-8], {vx, vy, %0, c}; mov.u32 vx, %0; mov.u32 vy, c; xor.pred vp, vp, vl; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#elif HOW == 18  // as 4, four bytes instead of eight: the clock alone
OPEN_("mad.lo.u32 ve, %1, 8, va;");
#define BODY "mov.b64 a, {va, vh}; mov.u32 c, %%clock; @vl st.global.cs.u32 [a], c; add.u32 va, va, 8; min.u32 va, va, ve; add.u32 vc, vc, 1;"
#endif
#ifndef BEGIN_BODY
#define BEGIN_BODY BODY
#endif
#define VARIANT_BEGIN(word) asm volatile("{.reg .u32 c, o; .reg .u64 a; .reg .pred q;" BEGIN_BODY "}" ::"n"(word) : "memory")
CLOSE_;
