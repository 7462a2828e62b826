"""What warplens costs a program that launches kernels: host time, unrecorded kernels, memory, the end of a profile.

    PYTHONPATH=src python -m benchmarks.launch_cost --out results
    PYTHONPATH=src python -m benchmarks.launch_cost --out results --tutorials DIR --parts tutorials

Needs a GPU, torch and Triton; CuPy, cuda.core and the CuTe DSL are measured where they are installed. Writes
launch.json into the folder. The parts `unrecorded` and `slowdowns` measure the device time of kernels, `tutorials`
runs Triton's own tutorials, whose sources (python/tutorials of the repository) DIR has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt

ROUNDS, PER_ROUND = 15, 200
ENDED = 2000


@triton.jit
def small(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        value = tl.load(x + offs, mask=offs < n)
    with wlt.region("store"):
        tl.store(y + offs, value * 2, mask=offs < n)


@triton.jit
def other(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n) + 1, mask=offs < n)


def timed_us(call: Callable[[], Any], launches: int) -> list[float]:
    """Microseconds of the launching thread for each of some calls, back to back."""
    torch.cuda.synchronize()
    times = []
    clock = time.perf_counter_ns
    before = clock()
    for _ in range(launches):
        call()
        now = clock()
        times.append((now - before) / 1e3)
        before = now
    torch.cuda.synchronize()
    return times


def in_turn(call: Callable[[], Any], unrelated: Callable[[], Any] | None = None, **options: Any) -> dict[str, Any]:
    """Host time of a launch: plain, once its quota is used up, recorded, and of a kernel that is not profiled; each of
    some rounds measures all of them, so that what else the machine does meets all alike."""
    rounds: dict[str, list[list[float]]] = {}
    for _ in range(ROUNDS):
        rounds.setdefault("plain", []).append(timed_us(call, PER_ROUND))
        with wl.profile(launches=1, **options):
            for _ in range(20):
                call()
            rounds.setdefault("closed", []).append(timed_us(call, PER_ROUND))
            if unrelated is not None:
                rounds.setdefault("not_profiled", []).append(timed_us(unrelated, PER_ROUND))
        if unrelated is not None:
            rounds.setdefault("plain_other", []).append(timed_us(unrelated, PER_ROUND))
        with wl.profile(**options) as prof:
            for _ in range(40):
                call()
            time.sleep(0.02)  # the first launches come home and say how much memory the others need
            rounds.setdefault("recorded", []).append(timed_us(call, PER_ROUND))
        assert len(prof.trace.meta.launches) >= PER_ROUND, prof.notes
    found: dict[str, Any] = {name: summary([us for some in all_ for us in some]) for name, all_ in rounds.items()}
    for name, base in (("closed", "plain"), ("recorded", "plain"), ("not_profiled", "plain_other")):
        if name in rounds:
            pairs = zip(rounds[name], rounds[base], strict=True)
            more = [statistics.median(one) - statistics.median(other) for one, other in pairs]
            means = zip(rounds[name], rounds[base], strict=True)
            found[f"{name}_above_plain"] = {
                "median": statistics.median(more),
                "rounds": more,
                "of_means": statistics.median(statistics.fmean(one) - statistics.fmean(other) for one, other in means),
            }
    return found


def summary(times: list[float]) -> dict[str, float]:
    quartiles = statistics.quantiles(times, n=4)
    return {"median": quartiles[1], "p25": quartiles[0], "p75": quartiles[2], "mean": statistics.fmean(times)}


def triton_host() -> dict[str, Any]:
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    grid = (132,)

    def call() -> None:
        small[grid](x, y, 1 << 14, BLOCK=128, num_warps=4)

    def unrelated() -> None:
        other[grid](x, y, 1 << 14, BLOCK=128, num_warps=4)

    call()
    unrelated()
    return in_turn(call, unrelated, kernels="small")


SOURCE = """
extern "C" __global__ void doubled(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def cupy_host() -> dict[str, Any]:
    import cupy

    x, y = cupy.ones(1 << 14, cupy.float32), cupy.empty(1 << 14, cupy.float32)
    kernel = cupy.RawKernel(SOURCE, "doubled")
    arguments = (x, y, 1 << 14)

    def call() -> None:
        kernel((132,), (128,), arguments)

    call()
    return in_turn(call, auto="all")


def cuda_core_host() -> dict[str, Any]:
    import cuda.core
    import numpy as np

    device = cuda.core.Device()
    device.set_current()
    stream = device.create_stream()
    options = cuda.core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    code = cuda.core.Program(SOURCE, code_type="c++", options=options).compile("ptx")
    kernel = code.get_kernel("doubled")
    config = cuda.core.LaunchConfig(grid=(132, 1, 1), block=(128, 1, 1))
    x, y = torch.ones(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    arguments = x.data_ptr(), y.data_ptr(), np.int32(1 << 14)

    def call() -> None:
        cuda.core.launch(stream, config, kernel, *arguments)

    call()
    return in_turn(call, auto="all")


def cute_host() -> dict[str, Any]:
    """A compiled CuTe function, where the CuTe DSL is installed."""
    from cutlass.cute.runtime import from_dlpack

    from benchmarks.lib.cute_doubled import BLOCKS, THREADS, compiled_doubled

    x, y = (from_dlpack(torch.ones(BLOCKS * THREADS, device="cuda")) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        compiled = compiled_doubled(x, y, folder)

        def call() -> None:
            compiled(x, y)

        call()
        return in_turn(call, auto="all")


def endings() -> dict[str, Any]:
    """Seconds from the last launch to the trace, of a profile with 2,000 recorded launches."""
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    found: dict[str, Any] = {}
    cases: dict[str, tuple[int, float, dict[str, Any]]] = {
        "8 blocks": (8, 0.0, {}),
        "8 blocks to a file": (8, 0.0, {"path": "small.warplens"}),
        "8 blocks to a file, 2 s later": (8, 2.0, {"path": "small.warplens"}),
        "132 blocks": (132, 0.0, {}),
        "132 blocks, 2 s later": (132, 2.0, {}),
        "132 blocks to a file": (132, 0.0, {"path": "large.warplens"}),
        "132 blocks to a file, 2 s later": (132, 2.0, {"path": "large.warplens"}),
        "132 blocks, sampled": (132, 0.0, {"trace_bytes": 8 << 20}),
        "132 blocks, sampled, 2 s later": (132, 2.0, {"trace_bytes": 8 << 20}),
    }
    for name, (blocks, pause, chosen) in cases.items():
        options = dict(chosen)
        tries = []
        for _ in range(2 if pause else 3):
            path = options.get("path")
            profile = wl.profile(path, **{key: value for key, value in options.items() if key != "path"})
            with profile:
                for number in range(ENDED):
                    small[(blocks,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
                    if number == 40:
                        time.sleep(0.02)
                torch.cuda.synchronize()
                time.sleep(pause)
                wall, cpu = time.perf_counter(), time.process_time()
            tries.append([time.perf_counter() - wall, time.process_time() - cpu])
        kept = len(profile.trace.meta.launches)
        found[name] = {
            "wall_s": min(one[0] for one in tries),
            "tries": tries,
            "launches": kept,
            "spans": len(profile.trace),
        }
        print(name, found[name], flush=True)
    return found


def beside_decoding() -> dict[str, Any]:
    """Host time of recorded launches, 4 ms apart, while the launches before them are decoded in the background, and
    where nothing is, in turn."""
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    rounds: dict[str, list[list[float]]] = {"decoding": [], "not decoding": []}
    for _ in range(5):
        for kind, all_times in rounds.items():
            times: list[float] = []
            with wl.profile() as prof:
                if kind != "decoding":
                    prof.buffers.idle = lambda: False
                for _ in range(1200):  # these take longer to decode than the launches below take to be made
                    small[(132,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
                for _ in range(120):
                    time.sleep(0.004)
                    before = time.perf_counter_ns()
                    small[(132,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
                    times.append((time.perf_counter_ns() - before) / 1e3)
            all_times.append(times)
    together = {kind: sorted(us for times in all_times for us in times) for kind, all_times in rounds.items()}
    found: dict[str, Any] = {
        kind: {**summary(times), "p99": times[-len(times) // 100]} for kind, times in together.items()
    }
    pairs = zip(*rounds.values(), strict=True)
    found["more"] = [statistics.median(one) - statistics.median(other) for one, other in pairs]
    return found


def memory() -> dict[str, Any]:
    """What torch says of its memory with and without a profile."""
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()
    with wl.profile():
        for _ in range(20):
            small[(132,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
        inside = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()
    return {"before": before, "inside": inside, "same": before == inside}


def device_us(call: Callable[[], Any], launches: int = 50) -> float:
    """Microseconds of the device per launch, back to back: the median of repeats."""
    times = []
    for _ in range(9):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        first.record()
        for _ in range(launches):
            call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / launches)
    return statistics.median(times)


def five_kernels() -> dict[str, Callable[[], Any]]:
    """The example kernels with marks, each with its arguments made before."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "triton"))
    import attention
    import matmul
    import softmax
    import vector_add

    def half(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float16)

    n = 1 << 24
    x, y, z = (torch.randn(n, device="cuda") for _ in range(3))
    rows, out = torch.randn(8192, 1000, device="cuda"), torch.empty(8192, 1000, device="cuda")
    a, b, c = half(4096, 4096), half(4096, 4096), half(4096, 4096)
    q, k, v, o = (half(16, 4096, 64) for _ in range(4))
    return {
        "vector_add": lambda: vector_add.vector_add[(n // 1024,)](x, y, z, n, BLOCK=1024),
        "softmax": lambda: softmax.softmax[(8192,)](out, rows, 1000, BLOCK=1024),
        "matmul": lambda: matmul.matmul[(32, 32)](a, b, c, 4096, 4096, 4096, 128, 128, 64, num_warps=4, num_stages=3),
        "matmul_8_warps": lambda: matmul.matmul[(32, 32)](
            a, b, c, 4096, 4096, 4096, 128, 128, 64, num_warps=8, num_stages=3
        ),
        "attention": lambda: attention.attention[(32, 16)](
            q, k, v, o, 0.18, 4096, 128, 64, 64, num_warps=4, num_stages=3
        ),
    }


def unrecorded() -> dict[str, Any]:
    """Launches that are not recorded against plain ones, taken in turn."""
    found: dict[str, Any] = {}
    for name, call in five_kernels().items():
        call()
        ratios = []
        for _ in range(5):
            plain = device_us(call, 20)
            with wl.profile(launches=1, auto=True) as prof:
                for _ in range(30):
                    call()
                ratios.append(device_us(call, 20) / plain)
        cost = prof.trace.meta.launches[0].cost
        found[name] = {"median": statistics.median(ratios), "ratios": ratios, "plain_us": plain, "cost": dict(cost)}
    return found


def slowdowns() -> dict[str, Any]:
    """The slowdown of recorded launches as a profile measures it, hand marks and automatic ones."""
    found: dict[str, Any] = {}
    for name, call in five_kernels().items():
        call()
        for kind, options in (("hand", {}), ("auto", {"auto": True})):
            with wl.profile(launches=10, **options) as prof:
                for _ in range(40):
                    call()
            cost = prof.trace.meta.launches[-1].cost
            found[f"{name} {kind}"] = {key: value for key, value in cost.items() if key.startswith("slowdown")}
    return found


def run_tutorial(tutorial: Path, profiled: bool, folder: Path, shown: list[str], seconds: float) -> dict[str, Any]:
    """Run a tutorial in a process of its own, as it is or under `warplens run --auto` with its defaults."""
    out, trace = folder / "tutorial.json", folder / "tutorial.warplens"
    for left in (out, trace):
        left.unlink(missing_ok=True)
    program = [str(Path(__file__).parent / "lib" / "tutorial.py"), str(tutorial), str(out), *shown]
    options = ["-m", "warplens", "run", "--auto", "-o", str(trace), "--force"] if profiled else []
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "MPLBACKEND": "Agg",
    }
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *options, *program], env=environment, capture_output=True, text=True, cwd=folder,
            check=False, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"profiled": profiled, "timed out after": seconds}
    found = json.loads(out.read_text()) if out.exists() else {}
    return {
        "profiled": profiled,
        "code": done.returncode,
        "seconds": time.perf_counter() - began,
        "trace_bytes": trace.stat().st_size if trace.exists() else None,
        "stdout": done.stdout[-1500:] if profiled or done.returncode else "",
        "stderr": done.stderr[-1500:],
        **found,
    }


def tutorials() -> dict[str, Any]:
    """Tutorial 03 plain and profiled in turn: what it prints and what its tuner chooses. Sizes of traces of others."""
    if given.tutorials is None:
        return {"not measured": "--tutorials DIR names the folder of Triton's tutorials"}
    sources = Path(given.tutorials)
    end = time.monotonic() + given.seconds
    found: dict[str, Any] = {}

    def run(name: str, profiled: bool, *shown: str) -> None:
        left = end - time.monotonic()
        if left > 0:
            made = run_tutorial(sources / f"{name}.py", profiled, folder, list(shown), left)
            found.setdefault(name, []).append(made)
            brief = {key: value for key, value in made.items() if key not in ("stdout", "stderr", "chosen")}
            print(name, "profiled" if profiled else "plain", json.dumps(brief)[:700], flush=True)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        matmul = "03-matrix-multiplication", ("1", "3", "1024", "2048", "4096")
        for profiled in (False, True):
            run(matmul[0], profiled, *matmul[1])
        run("02-fused-softmax", True, "1", "12")
        run("05-layer-norm", True, "1", "6")
        for profiled in (False, True):
            run(matmul[0], profiled, *matmul[1])
        run("06-fused-attention", True, "1", "2")
    return found


HOST = (triton_host, cupy_host, cuda_core_host, cute_host, endings, beside_decoding, memory)
OTHERS = (unrecorded, slowdowns, tutorials)
given = argparse.Namespace(tutorials=None, seconds=0.0)
"""What the command line says."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=".", help="folder for launch.json")
    known = {part.__name__: part for part in HOST + OTHERS}
    parser.add_argument(
        "--parts", nargs="+", choices=known, default=[part.__name__ for part in HOST], help="what to measure"
    )
    parser.add_argument("--tutorials", help="folder of Triton's tutorials, for the part of this name")
    parser.add_argument("--seconds", type=float, default=150.0, help="how long the tutorials may take")
    parser.parse_args(namespace=given)
    given.tutorials = given.tutorials and Path(given.tutorials).resolve()
    target = Path(given.out).resolve() / "launch.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        parts: dict[str, Any] = {
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]},
        }
        for part in (known[name] for name in given.parts):
            began = time.perf_counter()
            try:
                parts[part.__name__] = part()
            except ImportError as error:
                parts[part.__name__] = {"not measured": str(error)}
            except Exception:  # one part that fails must not lose the others
                parts[part.__name__] = {"failed": traceback.format_exc()}
            took = time.perf_counter() - began
            print(f"{part.__name__} ({took:.0f} s)", json.dumps(parts[part.__name__], default=str)[:1500], flush=True)
            target.write_text(json.dumps(parts, indent=1, default=str))


if __name__ == "__main__":
    main()
