"""The GEMM of examples/cute under IKET, under warplens or unmarked; times itself and prints one JSON line.

python benchmarks/cute_iket.py none
python benchmarks/cute_iket.py warplens
run-iket profile -- python benchmarks/cute_iket.py iket      # its ranges in place of warplens' regions
"""

# ruff: noqa: E402
from __future__ import annotations

import json
import statistics
import sys
import types
from pathlib import Path

# IKET runs this file by its path.
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "examples" / "cute")]

import cupy
import numpy as np
from cuda.bindings.driver import CUstream
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

import warplens
import warplens.cute as wlc
from benchmarks.lib.cute_reused_buffer import ReusedBuffer

SIZE, REPEATS, LAUNCHES = 4096, 7, 6


class Range:
    """`with region(name):` as a range of IKET."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        cute.experimental.iket.range_push(self.name)

    def __exit__(self, *_: object) -> None:
        cute.experimental.iket.range_pop()


def gemm_with_ranges() -> types.ModuleType:
    """The example, with its marks' module replaced while it is imported."""
    ranges = types.ModuleType("warplens.cute")
    ranges.region, ranges.kernel, ranges.Buffer = Range, lambda *_, **__: None, wlc.Buffer  # type: ignore[attr-defined]
    sys.modules["warplens.cute"] = warplens.cute = ranges  # type: ignore[attr-defined]
    import gemm

    return gemm


def main(how: str) -> None:
    if how == "iket":
        gemm = gemm_with_ranges()
    else:
        import gemm
    rng = np.random.default_rng(1)
    a, b = (cupy.asarray(rng.standard_normal((SIZE, SIZE), np.float32).astype(np.float16)) for _ in range(2))
    c = cupy.empty((SIZE, SIZE), cupy.float16)
    buffer = (
        ReusedBuffer().allocate((SIZE // gemm.M, SIZE // gemm.N), gemm.THREADS, 300)
        if how == "warplens"
        else ReusedBuffer()
    )
    given = (*(from_dlpack(x, assumed_align=16) for x in (a, b, c)), buffer, CUstream(0))
    compiled = cute.compile(gemm.run, *given, how != "none")
    compiled(*given)
    cupy.cuda.Device().synchronize()
    times = []
    for _ in range(REPEATS):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(LAUNCHES):
            compiled(*given)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) * 1000 / LAUNCHES)
    # On the host: IKET's tracker aborts when the process runs a kernel of cuBLAS.
    exact = a[:8].get().astype(np.float32) @ b.get().astype(np.float32).T
    right = bool(np.allclose(c[:8].get(), exact, rtol=1e-2, atol=2e-1))
    print(json.dumps({"us": statistics.median(times), "all": times, "right": right}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
