"""Profile a vector add: [TRITON_INTERPRET=1] python examples/triton/vector_add.py [out.warplens]. Needs torch."""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    with wlt.region("load"):
        a = tl.load(x + offsets, mask=mask)
        b = tl.load(y + offsets, mask=mask)
    with wlt.region("add"):
        c = a + b
    with wlt.region("store"):
        tl.store(out + offsets, c, mask=mask)


def main(path: str | None = None) -> None:
    import torch

    device = "cpu" if triton.knobs.runtime.interpret else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU here; run it with TRITON_INTERPRET=1")
    n = 1 << 20 if device == "cuda" else 1 << 12
    x, y = (torch.randn(n, device=device) for _ in range(2))
    out = torch.empty_like(x)
    with wl.profile(path) as profile:
        vector_add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    torch.testing.assert_close(out, x + y)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
