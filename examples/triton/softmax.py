"""A softmax with row maxima: [TRITON_INTERPRET=1] python examples/triton/softmax.py [out.warplens]. Needs torch."""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt


@triton.jit
def softmax(out, source, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    with wlt.region("load"):
        x = tl.load(source + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    with wlt.region("reduce"):
        top = tl.max(x, axis=0)
        x = tl.exp(x - top)
        total = tl.sum(x, axis=0)
    wlt.value("row maximum", top)
    with wlt.region("store"):
        tl.store(out + row * columns + offsets, x / total, mask=offsets < columns)


def main(path: str | None = None) -> None:
    import torch

    device = "cpu" if triton.knobs.runtime.interpret else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU here; run it with TRITON_INTERPRET=1")
    rows, columns = (4096, 1000) if device == "cuda" else (8, 100)
    x = torch.randn(rows, columns, device=device)
    out = torch.empty_like(x)
    with wl.profile(path) as profile:
        softmax[(rows,)](out, x, columns, BLOCK=triton.next_power_of_2(columns))
    torch.testing.assert_close(out, torch.softmax(x, dim=1), rtol=1e-4, atol=1e-5)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
