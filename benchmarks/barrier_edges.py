"""Who waited for whom, on a real GPU: every wait that waited has its arrival, and no edge points back in time.

A warp-specialised Gluon matmul (Hopper: wgmma, TMA and mbarriers) with automatic marks and with marks by hand, a CUDA
kernel with bulk copies and mbarriers, a CUDA kernel with named barriers, and a CuTe GEMM if the DSL is installed.
Prints one JSON document, and writes it with the traces and small captures to a folder. `kernel_ns_without_edges` is the
time of the same kernel with the same marks except the barriers'.

Run: PYTHONPATH=src python -m benchmarks.barrier_edges --out FOLDER [--dry-run]
`--dry-run` needs no GPU: it runs the CUDA kernel in the interpreter and compiles the Gluon kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
PIPELINE = ROOT / "benchmarks" / "kernels" / "pipeline.cu"
TILE, WARPS = 256, 4
LAUNCHES = 5
NO_EDGES = "loads,stores,copies,waits,mma,reduce"
NAMED = r"""
extern "C" __global__ void named(float *out, int rounds) {
    __shared__ float cell[8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float x = lane;
    for (int r = 0; r < rounds; ++r) {
        for (int i = 0; i < 50 * (1 + (warp + r) % 4); ++i) x = x * 1.0001f + 0.5f;
        if (lane == 0) cell[warp] = x;
        if (warp < 2) asm volatile("bar.sync 1, 64;" ::: "memory");
        else asm volatile("bar.sync 2, 64;" ::: "memory");
        x += cell[warp ^ 1];
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
"""


def check(trace: Any) -> dict[str, Any]:
    """The counts that must be zero, and what there is."""
    table = trace.edges
    edges = {name: table.column(name).to_numpy() for name in ("wait", "arrival_record", "waited_cycles", "slack_ns")}
    kinds = np.array(table.column("kind").to_pylist())
    known = edges["arrival_record"] >= 0
    wait, arrival = edges["wait"][known], edges["arrival_record"][known]
    start, duration = trace.numpy("start_cycle"), trace.numpy("dur_cycles")
    start_ns, sm = trace.numpy("start_ns"), trace.numpy("sm")
    same = sm[wait] == sm[arrival]
    late = start[arrival] - (start[wait] + duration[wait])
    late_ns = start_ns[arrival] - (start_ns[wait] + trace.numpy("dur_ns")[wait])
    error_ns = trace.meta.clock.residual_max_ns + 2 * trace.meta.clock.step_ns
    backward = np.where(same, late > 0, late_ns > error_ns)
    waited = edges["waited_cycles"] > 0
    latency = (start[wait] + duration[wait] - start[arrival])[same & (kinds[known] == "arrive") & waited[known]]
    return {
        "rows": len(trace),
        "barrier_records": int((trace.numpy("released_by") != -1).sum()),
        "edges": int(table.num_rows),
        "kinds": dict(Counter(kinds.tolist())),
        "waited": int(waited.sum()),
        "waited_without_arrival": int((kinds == "unknown").sum()),
        "pointing_back_in_time": int(backward.sum()),
        "cycles_from_arrival_to_wait_end": _spread(latency),
        "clock_error_ns": error_ns,
        "losses_clean": bool(trace.meta.losses.clean),
        "notes": {name: list(texts) for name, texts in trace.meta.notes.items()},
    }


def _spread(values: np.ndarray) -> dict[str, float]:
    if not len(values):
        return {}
    points = np.percentile(values, [0, 50, 99, 100])
    return dict(zip(("min", "p50", "p99", "max"), map(float, points), strict=True))


def roles(trace: Any) -> list[dict[str, Any]]:
    from warplens.analyse.barrier_roles import warp_duties

    return [vars(duty) for duty in warp_duties(trace)]


def recorded(run: Callable[[], Any], folder: Path, name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Profile a few launches; save the trace and a capture of the first."""
    from warplens.profiling.profile import Profile
    from warplens.record.capture import Capture, write_capture

    launches: list[Any] = []

    class Keep(Profile):
        """A profile that keeps the raw launches it is about to decode."""

        def collect(self) -> Any:
            found, problems = super().collect()
            launches.extend(found)
            return found, problems

    with Keep(**options) as profile:
        for _ in range(LAUNCHES):
            run()
    trace = profile.trace
    trace.save(folder / f"{name}.warplens")
    kept = Capture(launches[:1], device=profile.device)
    size = write_capture(kept, folder / f"{name}.wlcap").stat().st_size
    return trace, {"capture_bytes": size, "kernel_ns": [info.end_ns - info.begin_ns for info in trace.meta.launches]}


def gluon_automatic(folder: Path) -> dict[str, Any]:
    import tests.support.plain_kernels as kernels

    run, right = _gluon(kernels.gluon_gemm)
    trace, facts = recorded(run, folder, "gluon_auto", auto=True)
    plain, bare = recorded(run, folder, "gluon_auto_no_edges", auto=NO_EDGES)
    _, small = recorded(run, folder, "gluon_small", auto=True, blocks=2)
    return {
        **check(trace), **facts, "right": right(), "roles": roles(trace), "small_capture_bytes": small["capture_bytes"],
        "kernel_ns_without_edges": bare["kernel_ns"], "rows_without_edges": len(plain),
    }  # fmt: skip


def gluon_by_hand(folder: Path) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "examples" / "triton"))
    import gluon_matmul

    run, right = _gluon(gluon_matmul.specialised_matmul)
    trace, facts = recorded(run, folder, "gluon_hand")
    return {**check(trace), **facts, "right": right(), "roles": roles(trace)}


def _gluon(kernel: Any) -> tuple[Callable[[], Any], Callable[[], bool]]:
    import torch
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    size, (m, n, k) = 1024, (128, 128, 64)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def describe(tensor: Any, shape: tuple[int, int]) -> Any:
        layout = gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16)
        return TensorDescriptor.from_tensor(tensor, list(shape), layout)

    arguments = describe(a, (m, k)), describe(b, (k, n)), describe(c, (m, n))

    def run() -> None:
        kernel[(size // m, size // n)](*arguments, size, m, n, k, 3, num_warps=8)

    return run, lambda: bool(torch.allclose(c, a @ b, rtol=1e-2, atol=1e-1))


def cuda_bulk_copies(folder: Path, work: int = 200) -> dict[str, Any]:
    import cupy

    blocks, tiles = 132, 64
    data = cupy.random.randint(0, 9, (blocks, tiles * TILE)).astype(cupy.float32)
    out = cupy.zeros(blocks, cupy.float32)
    kernel = cupy.RawModule(code=PIPELINE.read_text(), options=("-lineinfo",)).get_function("tile_sums")

    def run() -> None:
        kernel((blocks,), (32 * WARPS,), (data, out, np.int32(tiles), np.int32(work)))

    cupy.cuda.runtime.deviceSynchronize()
    trace, facts = recorded(run, folder, f"cuda_pipeline_{work}", auto=True)
    right = bool((out == LAUNCHES * data.sum(axis=1)).all())
    _, bare = recorded(run, folder, f"cuda_pipeline_{work}_no_edges", auto=NO_EDGES)
    _, small = recorded(run, folder, f"cuda_pipeline_{work}_small", auto=True, blocks=2)
    return {
        **check(trace), **facts, "right": right, "roles": roles(trace), "kernel_ns_without_edges": bare["kernel_ns"],
        "small_capture_bytes": small["capture_bytes"],
    }  # fmt: skip


def cuda_named_barriers(folder: Path) -> dict[str, Any]:
    import cupy

    out = cupy.zeros(132 * 128, cupy.float32)
    kernel = cupy.RawModule(code=NAMED, options=("-lineinfo",)).get_function("named")
    run = lambda: kernel((132,), (128,), (out, np.int32(32)))  # noqa: E731
    trace, facts = recorded(run, folder, "cuda_named", auto="all", blocks=8)
    return {**check(trace), **facts}


def cute_gemm(folder: Path) -> dict[str, Any]:
    """The GEMM of examples/cute without its marks, which name no barrier: rules mark its mbarriers and copies."""
    try:
        from cutlass import cute
        from cutlass.cute.runtime import from_dlpack
    except ImportError as missing:
        return {"skipped": str(missing)}
    import torch
    from cuda.bindings.driver import CUstream

    sys.path.insert(0, str(ROOT / "examples" / "cute"))
    import gemm

    size = 1024
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    stream = CUstream(torch.cuda.current_stream().cuda_stream)
    given = (*(from_dlpack(x, assumed_align=16) for x in (a, b, c)), None, stream)
    compiled: list[Any] = []

    def run() -> None:
        compiled[:] = compiled or [cute.compile(gemm.run, *given, False)]  # inside the profile, which keeps its PTX
        compiled[0](*given)

    trace, facts = recorded(run, folder, "cute_gemm", auto=True)
    right = bool(torch.allclose(c, a @ b.T, rtol=1e-2, atol=1e-1))
    return {**check(trace), **facts, "right": right, "roles": roles(trace)}


def simulated(_: Path) -> dict[str, Any]:
    from tests.support.barrier_pipeline import run_pipeline

    run = run_pipeline(blocks=2, tiles=16, work=100)
    return {**check(run.trace), "right": run.sums.tolist() == run.expected.tolist(), "roles": roles(run.trace)}


def compiled(_: Path) -> dict[str, Any]:
    from tests.support.plain_jobs import CAPABILITY, plain_jobs
    from tests.support.triton_examples import compile_woven
    from warplens.auto.rules import Auto
    from warplens.frontends.triton.weaving_compiler import Recipe
    from warplens.weave.weaving import Weaving

    job = next(job for job in plain_jobs() if job.name == "gluon_gemm")
    found = {}
    for name, auto in (("edges", True), ("without", NO_EDGES)):
        kernel = compile_woven(job, CAPABILITY, Recipe(Weaving(), auto=Auto.of(auto)))
        found[name] = {"resources": kernel.metadata.warplens["resources"], "remarks": kernel.metadata.warplens_remarks}
    return found


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "gluon_automatic": gluon_automatic,
    "gluon_by_hand": gluon_by_hand,
    "cuda_bulk_copies": cuda_bulk_copies,
    "cuda_bulk_copies_fast_consumers": lambda folder: cuda_bulk_copies(folder, 0),
    "cuda_named_barriers": cuda_named_barriers,
    "cute_gemm": cute_gemm,
}
DRY: dict[str, Callable[[Path], dict[str, Any]]] = {"simulated": simulated, "compiled": compiled}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the traces, captures and edges.json")
    parser.add_argument("--dry-run", action="store_true", help="what can be checked without a GPU")
    parser.add_argument("cases", nargs="*", help="run only these cases")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name, case in (DRY if asked.dry_run else CASES).items():
        if asked.cases and name not in asked.cases:
            continue
        began = time.time()
        try:
            results[name] = case(asked.out)
        except Exception:  # one case that fails must not lose the others
            results[name] = {"failed": traceback.format_exc()[-2000:]}
        results[name]["seconds"] = round(time.time() - began, 1)
        print(f"{name}: {results[name]['seconds']} s", file=sys.stderr, flush=True)
        (asked.out / "edges.json").write_text(json.dumps(results, indent=1, default=str))
    print(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    main()
