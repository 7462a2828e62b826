"""A PyTorch layer with two marked Triton kernels. Run: warplens run --torch examples/torch/layer.py

This writes operators, kernel launches and the regions of every warp to one Perfetto file, layer.pftrace. Needs a GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def row_softmax(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    with wlt.region("load"):
        values = tl.load(x + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    with wlt.region("reduce"):
        values = tl.exp(values - tl.max(values, axis=0))
        values = values / tl.sum(values, axis=0)
    with wlt.region("store"):
        tl.store(out + row * columns + offsets, values, mask=offsets < columns)


@triton.jit
def scaled_add(out, x, y, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        a = tl.load(x + offsets, mask=offsets < n)
        b = tl.load(y + offsets, mask=offsets < n)
    with wlt.region("store"):
        tl.store(out + offsets, a + scale * b, mask=offsets < n)


def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute softmax(x @ weight) @ weight + x / 2 with a softmax over each row."""
    scores = x @ weight
    shares = torch.empty_like(scores)
    rows, columns = scores.shape
    row_softmax[(rows,)](shares, scores, columns, BLOCK=triton.next_power_of_2(columns))
    mixed = shares @ weight
    out = torch.empty_like(mixed)
    scaled_add[(triton.cdiv(out.numel(), 1024),)](out, mixed, x, 0.5, out.numel(), BLOCK=1024)
    return out


def main(steps: int = 4, rows: int = 64, columns: int = 512) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("this example needs a GPU")
    torch.manual_seed(0)
    x = torch.randn(rows, columns, device="cuda")
    weight = torch.randn(columns, columns, device="cuda") / columns**0.5
    wanted = torch.softmax(x @ weight, dim=1) @ weight + 0.5 * x
    for step in range(steps):
        with torch.profiler.record_function(f"step {step}"):
            out = layer(x, weight)
    torch.testing.assert_close(out, wanted, atol=1e-2, rtol=1e-2)
    print(f"{steps} steps of a {rows}×{columns} layer, as expected")


if __name__ == "__main__":
    main()
