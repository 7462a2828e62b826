"""A pipelined and a persistent matmul, both with marks. Needs a GPU and torch.

Run: python examples/triton/matmul.py [out.warplens]
"""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        with wlt.region("load"):
            x = tl.load(pa)
            y = tl.load(pb)
        with wlt.region("dot"):
            acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * N
    with wlt.region("store"):
        tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def persistent_matmul(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * columns
    rk = tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        wlt.value("tile", tile)
        with wlt.region("tile"):
            rm = tile // columns * BM + tl.arange(0, BM)
            rn = tile % columns * BN + tl.arange(0, BN)
            pa = a + rm[:, None] * K + rk[None, :]
            pb = b + rk[:, None] * N + rn[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for _ in range(0, K, BK):
                with wlt.region("load"):
                    x = tl.load(pa)
                    y = tl.load(pb)
                with wlt.region("dot"):
                    acc = tl.dot(x, y, acc)
                pa += BK
                pb += BK * N
            with wlt.region("store"):
                tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


def main(path: str | None = None) -> None:
    import torch

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    n, tile = 2048, 128
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c, d = torch.empty_like(a), torch.empty_like(a)
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    with wl.profile(path) as profile:
        matmul[(n // tile, n // tile)](a, b, c, n, n, n, tile, tile, 64, num_warps=4, num_stages=3)
        persistent_matmul[(programs,)](a, b, d, n, n, n, programs, tile, tile, 64, num_warps=4, num_stages=3)
    torch.testing.assert_close(c, d)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
