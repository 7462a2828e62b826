"""Everything about the CuTe DSL that needs a GPU, in one command: PYTHONPATH=src python -m benchmarks.cute_on_gpu OUT

Profiles a vector add and a warp-specialised GEMM, compares their results bit for bit with the unmarked kernels, times
both, saves small captures, runs the nuggets example, and tries NVIDIA's IKET on the same GEMM. Each step is on its own:
one that fails is reported and the others go on. The result is OUT/cute.json.
"""

# ruff: noqa: E402
from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples" / "cute"))

import gemm
import torch
import vector_add
from cuda.bindings.driver import CUstream
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

import warplens.cute as wlc
from benchmarks.lib.cute_reused_buffer import ReusedBuffer
from benchmarks.lib.gpu_programs import context, median
from warplens.driver.libcuda import driver
from warplens.profiling.profile import Profile
from warplens.record.capture import Capture, write_capture

REPEATS, LAUNCHES = 15, 10
LOSSES = ("records_written", "records_lost", "open_spans", "orphan_ends", "tracks", "tracks_without_exit")


class Keep(Profile):
    """A profile that keeps the raw launches it is about to decode."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pending_launches: list[Any] = []

    def add(self, pending: Any) -> None:
        self.pending_launches.append(pending)
        super().add(pending)


def tensors(*arrays: torch.Tensor) -> list[Any]:
    return [from_dlpack(array, assumed_align=16) for array in arrays]


def stream() -> Any:
    return CUstream(torch.cuda.current_stream().cuda_stream)


def gemm_arguments(size: int, buffer: Any) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float16)
    return [a, b, c], (*tensors(a, b, c), buffer, stream())


def vector_arguments(size: int, buffer: Any) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
    x, y = (torch.randn(size, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    return [x, y, out], (*tensors(x, y, out), buffer)


KERNELS: dict[str, tuple[Any, Any, Callable[..., Any], int, int, Callable[[int], Any], int]] = {
    "gemm": (gemm, gemm.run, gemm_arguments, 4096, 512, lambda n: (n // gemm.M, n // gemm.N), gemm.THREADS),
    "vector_add": (
        vector_add, vector_add.run, vector_arguments, 1 << 24, 1 << 16,
        lambda n: (n // vector_add.THREADS // vector_add.STEPS,), vector_add.THREADS,
    ),
}  # fmt: skip


def reference(name: str, arrays: list[torch.Tensor]) -> torch.Tensor:
    return arrays[0] @ arrays[1].T if name == "gemm" else arrays[0] + arrays[1]


def profiled(name: str, out: Path) -> dict[str, Any]:
    """Right, bit for bit, every record there, and a small capture of it."""
    _, run, arguments, size, small, _, _ = KERNELS[name]
    result: dict[str, Any] = {}
    for label, n in (("small", small), ("large", size)):
        buffer = wlc.buffer(records_per_warp=512 if label == "small" else None)
        if label == "large":
            grid, block = KERNELS[name][5](n), KERNELS[name][6]
            buffer = wlc.buffer(grid, block)
        arrays, given = arguments(n, buffer)
        marked, plain = cute.compile(run, *given, True), cute.compile(run, *given, False)
        plain(*given)
        torch.cuda.synchronize()
        expected = arrays[2].clone()
        arrays[2].fill_(float("nan"))
        with Keep() as profile:
            marked(*given)
            marked(*given)
        torch.testing.assert_close(expected, reference(name, arrays), rtol=1e-2, atol=1e-1 if name == "gemm" else 1e-5)
        trace = profile.trace
        result[label] = {
            "size": n,
            "bit_identical": bool(torch.equal(arrays[2], expected)),
            "launches": len(trace.meta.launches),
            "losses": {
                key: getattr(trace.meta.losses, key)
                for key in ("records_written", "records_lost", "open_spans", "orphan_ends", "tracks")
            },
            "clock": str(trace.meta.clock)[:400],
            "regions": {
                row.region: {"count": row.count, "p50": row.p50, "p50_ns": row.p50_ns} for row in trace.stats()
            },
        }
        arrays[2].fill_(float("nan"))
        marked(*given)
        torch.cuda.synchronize()
        result[label]["bit_identical_outside"] = bool(torch.equal(arrays[2], expected))
        if label == "small":
            launch = profile.pending_launches[0].collect()
            where = {ident: str(Path(place).relative_to(HERE.parent)) for ident, place in launch.locations.items()}
            capture = Capture([replace(launch, locations=where)], device=profile.device)
            result[label]["capture_bytes"] = write_capture(capture, out / f"cute_{name}.wlcap").stat().st_size
    return result


def overhead(name: str) -> dict[str, Any]:
    """Times of the unmarked kernel, of the marked one that records, and of the marked one without a buffer."""
    _, run, arguments, size, _, grid, block = KERNELS[name]
    recording, idle = ReusedBuffer().allocate(grid(size), block, 300), ReusedBuffer()
    modes: dict[str, Callable[[], Any]] = {}
    for mode, buffer, on in (
        ("plain", idle, False),
        ("recording", recording, True),
        ("marked, no buffer", idle, True),
        ("plain again", idle, False),
    ):
        _, given = arguments(size, buffer)
        compiled = cute.compile(run, *given, on)
        modes[mode] = lambda compiled=compiled, given=given: compiled(*given)
    for work in modes.values():
        for _ in range(5):
            work()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    order = list(modes)
    for _ in range(REPEATS):
        for mode in order:
            work = modes[mode]
            work()
            times[mode].append(timed_on_stream(lambda work=work: [work() for _ in range(LAUNCHES)]) / LAUNCHES)
        order = order[1:] + order[:1]
    base = times["plain"]
    slow = {mode: [t / b for t, b in zip(times[mode], base, strict=True)] for mode in modes}
    return {
        mode: {"us": median(times[mode]), "slowdown": median(slow[mode]), "range": [min(slow[mode]), max(slow[mode])]}
        for mode in modes
    }


def timed_on_stream(work: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000


def resources() -> dict[str, Any]:
    """Registers and local memory as the driver has them."""
    import tempfile
    from ctypes import byref, c_int, c_void_p

    result = {}
    for name, (_, run, arguments, _, small, _, _) in KERNELS.items():
        for on in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                _, given = arguments(small, wlc.buffer())
                compiled = cute.compile(run, *given, on, options=f"--keep-cubin --keep-ptx --dump-dir={folder}")
            module = driver().load(compiled.__cubin__)
            (symbol,) = [
                line.split("(")[0].split()[-1] for line in compiled.__ptx__.splitlines() if ".visible .entry" in line
            ]
            handle, row = driver().function(module, symbol), {}
            for label, number in (("registers", 4), ("local_bytes", 3)):
                value = c_int()
                driver()._call("cuFuncGetAttribute", byref(value), c_int(number), c_void_p(handle))
                row[label] = value.value
            result[f"{name} {'marked' if on else 'plain'}"] = row
    return result


def nuggets(out: Path) -> dict[str, Any]:
    from warplens.compat.nuggets import example

    path = out / "nuggets.json"
    example.main(str(path))
    rows = [row for row in json.loads(path.read_text())["traceEvents"] if row["ph"] == "X"]
    path.unlink()
    return {"events": len(rows), "durations_ns": sorted(row["args"]["dur_ns"] for row in rows)}


def iket(out: Path) -> dict[str, Any]:
    """NVIDIA's IKET and warplens on the same GEMM, each in a process of its own that times itself, by turns."""
    script = [sys.executable, str(HERE / "cute_iket.py")]
    folder = out / "iket"
    tool = [sys.executable, "-m", "iket.cli.main", "-o", str(folder), "--clobber", "profile", "--postprocess", "none"]
    commands = {
        "unmarked": [*script, "none"],
        "warplens": [*script, "warplens"],
        "iket": [*tool, "--", *script, "iket"],
    }
    result: dict[str, Any] = {name: [] for name in commands}
    for _ in range(3):
        for name, command in commands.items():
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            result[name].append(_last_json(done))
            print(name, json.dumps(result[name][-1])[:300], flush=True)
    subprocess.run(["rm", "-rf", str(folder)])
    return result


def _last_json(done: Any) -> Any:
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return (
        [json.loads(row) for row in rows]
        if rows
        else {"exit": done.returncode, "said": (done.stdout + done.stderr)[-2000:]}
    )


def main(folder: str, *only: str) -> None:
    """Run the steps called `only` (all of them without one) and keep what other steps left in the folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = json.loads((out / "cute.json").read_text()) if (out / "cute.json").exists() else {}
    steps: dict[str, Callable[[], Any]] = {
        "context": lambda: {**context("benchmarks/cute_on_gpu.py"), "torch": torch.__version__, "cutlass": _version()},
        "vector_add profiled": lambda: profiled("vector_add", out),
        "gemm profiled": lambda: profiled("gemm", out),
        "resources": resources,
        "gemm overhead": lambda: overhead("gemm"),
        "vector_add overhead": lambda: overhead("vector_add"),
        "nuggets": lambda: nuggets(out),
        "iket": lambda: iket(out),
    }
    for name, step in steps.items():
        if only and name not in only:
            continue
        try:
            result[name] = step()
        except Exception:
            # A failed step must not lose the others' results: the GPU's time is dear.
            result[name] = {"failed": traceback.format_exc()[-3000:]}
        print(name, json.dumps(result[name])[:1500], flush=True)
        (out / "cute.json").write_text(json.dumps(result, indent=1))


def _version() -> str:
    import cutlass

    return str(getattr(cutlass, "__version__", "?"))


if __name__ == "__main__":
    main(*sys.argv[1:])
