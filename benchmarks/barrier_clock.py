"""When does a clock read behind a block barrier really happen?

Warp 1 of two arrives about 3000 cycles late. Warp 0 reads the clock, waits at the barrier and reads it again, with a
different instruction between barrier and read in each row: the difference should be about 3000, and the second column
says what the instruction costs when nobody is late. Run on a GPU: python -m benchmarks.barrier_clock
"""

from __future__ import annotations

import json

SOURCE = r"""
extern "C" __global__ void late(unsigned* out, int spin) {
  __shared__ unsigned word[64];
  word[threadIdx.x] = threadIdx.x;
  unsigned t0, t1, x = threadIdx.x, addr = (unsigned)__cvta_generic_to_shared(word);
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t0) :: "memory");
  if (threadIdx.x >= 32) { unsigned s; do { asm volatile("mov.u32 %0, %%clock;" : "=r"(s)); } while (s - t0 < spin); }
  asm volatile("{ .reg .pred p, q; .reg .b32 r; .reg .b64 d;\n"
    "mov.u32 %0, %%clock;\n" BODY "}" : "=&r"(t0), "=&r"(t1), "+r"(x) : "r"(addr) : "memory");
  if (threadIdx.x == 0) { out[0] = t1 - t0; out[2] = x; }
  unsigned b, e;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(b) :: "memory");
  for (int i = 0; i < 256; ++i) {
    unsigned u0, u1;
    asm volatile("{ .reg .pred p, q; .reg .b32 r; .reg .b64 d;\n"
      "mov.u32 %0, %%clock;\n" BODY "}" : "=&r"(u0), "=&r"(u1), "+r"(x) : "r"(addr) : "memory");
    x += u1 - u0;
  }
  asm volatile("mov.u32 %0, %%clock;" : "=r"(e) :: "memory");
  if (threadIdx.x == 0) { out[1] = e - b; out[3] = x; }
}
"""
CLOCK = "mov.u32 %1, %clock;"
IF_R = "setp.ne.u32 p, r, 0xfffffff1; mov.u32 %1, 0; @p mov.u32 %1, %clock;"
VARIANTS = {
    "nothing": "bar.sync 0; " + CLOCK,
    "barrier.sync": "barrier.sync 0; " + CLOCK,
    "bar.red popc": "setp.eq.u32 q, %2, %2; bar.red.popc.u32 r, 0, q; " + IF_R,
    "bar.red or": "setp.ne.u32 q, %2, 0xfffffff1; bar.red.or.pred p, 0, q; mov.u32 %1, 0; @p mov.u32 %1, %clock;",
    "second clock": "bar.sync 0; mov.u32 %1, %clock; " + CLOCK,
    "clock64": "bar.sync 0; mov.u64 d, %clock64; cvt.u32.u64 %1, d;",
    "shfl": "bar.sync 0; shfl.sync.idx.b32 r, %2, 0, 31, -1; " + CLOCK,
    "shfl, used": "bar.sync 0; shfl.sync.idx.b32 r, %2, 0, 31, -1; " + IF_R,
    "bar.warp.sync": "bar.sync 0; bar.warp.sync -1; " + CLOCK,
    "vote, used": "bar.sync 0; setp.ne.u32 q, %2, 0xfffffff1; vote.sync.ballot.b32 r, q, -1; " + IF_R,
    "match, used": "bar.sync 0; match.any.sync.b32 r, %2, -1; " + IF_R,
    "membar.cta": "bar.sync 0; membar.cta; " + CLOCK,
    "laneid, used": "bar.sync 0; mov.u32 r, %laneid; " + IF_R,
    "warpid, used": "bar.sync 0; mov.u32 r, %warpid; " + IF_R,
    "smid, used": "bar.sync 0; mov.u32 r, %smid; " + IF_R,
    "globaltimer, used": "bar.sync 0; mov.u32 r, %globaltimer_lo; " + IF_R,
    "nanosleep 0": "bar.sync 0; nanosleep.u32 0; " + CLOCK,
    "ld.shared, used": "bar.sync 0; ld.volatile.shared.u32 r, [%3]; " + IF_R,
    "popc, used": "bar.sync 0; popc.b32 r, %2; " + IF_R,
    "cvt, used": "bar.sync 0; cvt.rn.f32.u32 r, %2; " + IF_R,
    "ex2, used": "bar.sync 0; ex2.approx.f32 r, %2; " + IF_R,
    "fence.proxy": "bar.sync 0; fence.proxy.async.shared::cta; " + CLOCK,
    "isspacep": "bar.sync 0; activemask.b32 r; " + IF_R,
}
for _n in (1, 2, 4, 8, 12, 16, 24, 32):
    VARIANTS[f"{_n} dependent adds"] = "bar.sync 0; " + "mad.lo.u32 %2, %2, 3, 1; " * _n + "mov.b32 r, %2; " + IF_R


def main() -> None:
    import cupy

    rows = []
    for name, body in VARIANTS.items():
        text = "".join(f'"{part.strip().replace("%clock", "%%clock")};\\n"' for part in body.split(";") if part.strip())
        for register in ("laneid", "warpid", "smid", "globaltimer_lo"):
            text = text.replace(f"%{register}", f"%%{register}")
        kernel = cupy.RawKernel(SOURCE.replace("BODY", text), "late")
        out = cupy.zeros(4, cupy.uint32)
        seen = []
        for _ in range(5):
            kernel((1,), (64,), (out, cupy.int32(3000)))
            seen.append(out.get().tolist())
        waits, loops = sorted(s[0] for s in seen), sorted(s[1] for s in seen)
        rows.append({"between": name, "wait": waits[2], "least": waits[0], "loop_cycles": loops[2] / 256})
        print(f"{name:20} waited {waits[0]:6} .. {waits[-1]:6}   {loops[2] / 256:7.1f} cycles a turn", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
