"""The GEMM of examples/cute with IKET's ranges in place of warplens' regions; times itself and prints one JSON line.

Run it alone (the DSL compiles the ranges out) and under `run-iket profile -- python benchmarks/cute_iket.py`.
"""

# ruff: noqa: E402
from __future__ import annotations

import json
import statistics
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))
sys.path.insert(0, str(HERE.parent / "examples" / "cute"))

import cupy
from cuda.bindings.driver import CUstream
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

import warplens
import warplens.cute as wlc

SIZE, REPEATS, LAUNCHES = 4096, 5, 4


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


def main() -> None:
    gemm = gemm_with_ranges()
    a, b = (cupy.random.standard_normal((SIZE, SIZE), dtype=cupy.float32).astype(cupy.float16) for _ in range(2))
    c = cupy.empty((SIZE, SIZE), cupy.float16)
    given = (*(from_dlpack(x, assumed_align=16) for x in (a, b, c)), wlc.buffer(), CUstream(0))
    compiled = cute.compile(gemm.run, *given)
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
    right = bool(cupy.allclose(c[:64].astype(cupy.float32), a[:64] @ b.T, rtol=1e-2, atol=2e-1))
    print(json.dumps({"us": statistics.median(times), "all": times, "right": right}), flush=True)


if __name__ == "__main__":
    main()
