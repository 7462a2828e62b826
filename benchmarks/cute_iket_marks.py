"""The GEMM of examples/cute with ranges of IKET, recorded by warplens: by the drop-in, and by IKET's own marks.

PYTHONPATH=src python -m benchmarks.cute_iket_marks --out DIR [--size 4096]

Compares the results bit for bit with the unmarked kernel, counts the records, and times the kernels. Each way is on its
own: one that fails is reported and the others go on. Writes DIR/cute_iket_marks.json.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
import traceback
import types
from collections import Counter
from pathlib import Path
from typing import Any

import warplens

GEMM = Path(__file__).resolve().parent.parent / "examples" / "cute" / "gemm.py"
LAUNCHES, REPEATS = 5, 15
LOSSES = ("records_written", "records_lost", "open_spans", "orphan_ends", "mismatched_ends", "tracks")
WAYS = {"unmarked": "", "drop-in": "warplens.compat.iket", "recognised": "cutlass.cute.experimental.iket"}
"""The module whose ranges the kernel has."""


def gemm_with(ranges: str) -> Any:
    """The example with a stand-in for its marks: ranges of this module, or nothing."""
    iket = importlib.import_module(ranges) if ranges else None

    class Region:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            if iket is not None:
                iket.range_push(self.name)

        def __exit__(self, *_: object) -> None:
            if iket is not None:
                iket.range_pop()

    marks: Any = types.ModuleType("warplens.cute")
    marks.region, marks.kernel, marks.Buffer = Region, lambda *_, **__: None, object
    package: Any = warplens
    before = sys.modules.get("warplens.cute"), vars(package).get("cute")
    sys.modules["warplens.cute"] = package.cute = marks
    try:
        spec = importlib.util.spec_from_file_location(f"gemm_{ranges.partition('.')[0]}", GEMM)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        del sys.modules["warplens.cute"], package.cute
        if before[0] is not None:
            sys.modules["warplens.cute"], package.cute = before


def expected(gemm: Any, size: int) -> dict[str, int]:
    """How often each range occurs in one launch: one warp loads, the warps of each group multiply and store."""
    blocks, steps, warps = (size // gemm.M) * (size // gemm.N), size // gemm.K, 4 * gemm.GROUPS
    loads, products = blocks * steps, blocks * steps * warps
    return {"wait empty": loads, "load": loads, "wait full": products, "mma": products, "store": blocks * warps}


def measure(way: str, size: int) -> dict[str, Any]:
    import torch
    from cuda.bindings.driver import CUstream
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

    gemm = gemm_with(WAYS[way])
    torch.manual_seed(1)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.full((size, size), float("nan"), device="cuda", dtype=torch.float16)
    stream = CUstream(torch.cuda.current_stream().cuda_stream)
    given = (*(from_dlpack(x, assumed_align=16) for x in (a, b, c)), None, stream)
    options = "iket" if way == "recognised" else ""
    found: dict[str, Any] = {}

    def timed(compiled: Any) -> float:
        times = []
        for _ in range(REPEATS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(LAUNCHES):
                compiled(*given)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1000 / LAUNCHES)
        return statistics.median(times)

    if way == "unmarked":
        compiled = cute.compile(gemm.run, *given)
        compiled(*given)
    else:
        with warplens.profile(records_per_warp=512) as profile:
            compiled = cute.compile(gemm.run, *given, **({"options": options} if options else {}))
            for _ in range(LAUNCHES):
                compiled(*given)
        trace = profile.trace
        names, wanted = trace.codes("region"), expected(gemm, size)
        spans = Counter(names[1][code] for code in names[0][trace.of_kind("span")].tolist())
        found["notes"] = {kernel: list(said) for kernel, said in profile.notes.items()}
        found["launches"] = len(trace.meta.launches)
        found["complete"] = all(spans[name] == LAUNCHES * count for name, count in wanted.items())
        found["spans"] = {name: spans[name] for name in wanted}
        found["losses"] = {name: getattr(trace.meta.losses, name) for name in LOSSES}
        found["recorded_us"] = statistics.median((one.end_ns - one.begin_ns) / 1000 for one in trace.meta.launches)
    torch.cuda.synchronize()
    found["result"] = c.clone()
    found["plain_us"] = timed(compiled)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--size", type=int, default=4096)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"size": arguments.size}
    first: Any = None
    for way in WAYS:
        try:
            found = measure(way, arguments.size)
            result = found.pop("result")
            first = result if first is None else first
            found["identical"] = bool((result == first).all())
        except Exception:  # the other ways still have something to say
            found = {"failed": traceback.format_exc().splitlines()[-1]}
            traceback.print_exc()
        document[way] = found
        print(json.dumps({way: found}), flush=True)
        (arguments.out / "cute_iket_marks.json").write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
