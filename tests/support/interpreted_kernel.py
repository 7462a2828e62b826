"""Run by frontends/triton/test_interpret.py under TRITON_INTERPRET=1; needs no tensors, so no torch."""

import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt


@triton.jit
def counted(N: tl.constexpr, STEP: tl.constexpr):
    with wlt.region("outer"):
        wlt.value("program", tl.program_id(0) + 10 * tl.program_id(1))
        for i in range(N):
            with wlt.region("inner"):
                x = tl.arange(0, 8) * i + STEP
            wlt.value("half", i * 0.5)
            wlt.async_begin("copy", i % 2)
            wlt.async_end("copy", i % 2)
        wlt.instant("sum " + "done")
    tl.max(x, axis=0)


counted[(2,)](3, STEP=1)
with wl.profile() as profile:
    counted[(2, 3)](4, STEP=2)
    counted[(1,)](1, STEP=2)
rows = profile.trace.spans.to_pylist()
count = {}
for row in rows:
    count[row["launch"], row["region"], row["kind"]] = count.get((row["launch"], row["region"], row["kind"]), 0) + 1
assert count[0, "outer", "span"] == 6, count
assert count[0, "inner", "span"] == 24
assert count[0, "sum done", "instant"] == 6
assert count[1, "inner", "span"] == 1
programs = {row["block"]: row["value"] for row in rows if row["region"] == "program" and row["launch"] == 0}
assert programs == {x + 2 * y: x + 10 * y for x in range(2) for y in range(3)}, programs
assert sorted({row["value"] for row in rows if row["region"] == "half"}) == [0, 0.5, 1.0, 1.5]
assert all(row["dur_ns"] >= 0 for row in rows if row["kind"] == "span")
print("clock", profile.trace.meta)
