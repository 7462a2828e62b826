"""Run one pair on the GPU: check the results, time both versions without a profiler, and record both."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.truth.gpu_lab import GpuLab
from benchmarks.truth.pair import BROKEN, Case, Pair
from benchmarks.truth.unmarked import without_marks
from warplens.launch.block_sampler import sample_launches
from warplens.profiling.profile import Profile
from warplens.record.capture import Capture, Launch, write_capture

ROUNDS, SAMPLE_US, MOST_REPEATS = 15, 400.0, 20
TRACE_BYTES, AUTOMATIC_BYTES = 1_800_000, 600_000
"""Of a slot, 8 bytes are counted; a trace file takes about half of that. Beyond it, only some blocks are kept."""
_CYCLES_PER_US = 2000


class Recording(Profile):
    """A profile that keeps the launches' raw bytes."""

    kept: list[Launch]

    def collect(self) -> tuple[list[Launch], list[str]]:
        launches, problems = super().collect()
        self.kept = launches
        return launches, problems


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other pair uses the GPU."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(pair: Pair, out: Path) -> dict[str, Any]:
    """Return what was found; a step that fails is noted, and the later ones still run."""
    lab, found = GpuLab(), dict[str, Any](errors={}, seconds={})
    case = pair.make(lab)
    with alone(out / "gpu.lock"):
        lab.move()
        attempt(found, "results", lambda: checked(case))
        attempt(found, "times", lambda: times(case))
        if pair.launches > 1:  # short kernels, where the gaps between launches matter
            attempt(found, "kernel_us", lambda: {name: kernel_us(run, pair.kernel) for name, run in case.run.items()})
        attempt(found, "traces", lambda: traces(pair, case, out, "", TRACE_BYTES))
        attempt(found, "automatic", lambda: automatic(pair, case, lab, out))
    if len(pair.versions) == 2 and "times" in found:
        before, after = (found["times"][version]["median_us"] for version in pair.versions)
        found["gain"] = round(1 - after / before, 4)
    return found


def attempt(found: dict[str, Any], name: str, step: Callable[[], Any]) -> None:
    begin = time.perf_counter()
    try:
        found[name] = step()
    except Exception as error:
        traceback.print_exc()
        found["errors"][name] = f"{type(error).__name__}: {error}"[:2000]
    found["seconds"][name] = round(time.perf_counter() - begin, 1)


def checked(case: Case) -> dict[str, Any]:
    """Run each version once from cleared outputs, and compare it with the expected result and the other version."""
    results = {}
    for version, run in case.run.items():
        for tensor in case.clear:
            tensor.zero_()
        run()
        torch.cuda.synchronize()
        results[version] = case.outputs[version].cpu().numpy().copy()
    found: dict[str, Any] = {"identical": _identical(list(results.values()))}
    for version, result in results.items():
        expected = case.expected if case.expected is not None else next(iter(results.values()))
        error = float(np.max(np.abs(result.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1)))
        found[version] = {"largest_error": error, "right": error <= case.tolerance}
    if not all(found[version]["right"] for version in results):
        raise AssertionError(f"wrong results: {found}")
    return found


def _identical(results: list[Any]) -> bool:
    return all(np.array_equal(results[0], other) for other in results[1:])


def times(case: Case) -> dict[str, Any]:
    """Time the versions in turn, with events around enough runs; the launches queue up behind a kernel that waits."""
    repeats, host = {}, {}
    for version, run in case.run.items():
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        host[version] = (time.perf_counter() - begin) * 1e6
        torch.cuda.synchronize()
        once = sample_us(run, 1, host[version])
        repeats[version] = int(min(max(SAMPLE_US / once, 1), MOST_REPEATS))
    samples: dict[str, list[float]] = {version: [] for version in case.run}
    for number in range(ROUNDS):
        order = list(case.run.items())
        for version, run in order if number % 2 else reversed(order):
            samples[version].append(sample_us(run, repeats[version], host[version]) / repeats[version])
    return {
        version: {
            "median_us": round(statistics.median(taken), 3),
            "p10_us": round(float(np.quantile(taken, 0.1)), 3),
            "p90_us": round(float(np.quantile(taken, 0.9)), 3),
            "runs_per_sample": repeats[version],
            "samples": len(taken),
        }
        for version, taken in samples.items()
    }


def sample_us(run: Callable[[], None], repeats: int, host_us: float) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(int(_CYCLES_PER_US * (100 + 2 * host_us * repeats)))
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000


def kernel_us(run: Callable[[], None], kernel: str, runs: int = 5) -> float:
    """Return the time inside the kernels of one run, without the gaps between launches, as CUPTI measures it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    taken = sum(event.device_time_total for event in profiled.key_averages() if kernel in event.key)
    return round(taken / runs, 3)


def traces(pair: Pair, case: Case, out: Path, kind: str, most_bytes: int, **options: Any) -> dict[str, Any]:
    """Record each version to NAME.VERSION[.KIND].warplens and keep its raw bytes.

    The first launch of a recording is left out: it loads the code.
    """
    found = {}
    for version, run in case.run.items():
        stem = ".".join(filter(None, (pair.name, version, kind)))
        run()
        torch.cuda.synchronize()
        path = out / f"{stem}.warplens"
        path.unlink(missing_ok=True)
        records = {} if "auto" in options else {"records_per_warp": pair.records}
        count = (pair.launches if version == BROKEN else 1) + 1
        recording = Recording(path, launches=count, skip="cold", trace_bytes=most_bytes, **records, **options)
        with recording as profile:
            for _ in range(count):
                run()
            torch.cuda.synchronize()
        (out / "raw").mkdir(exist_ok=True)
        raw = Capture(sample_launches(recording.kept, most_bytes), device=recording.device)
        write_capture(raw, out / "raw" / f"{stem}.wlcap")
        trace = profile.trace
        found[version] = {
            "file": path.name, "bytes": path.stat().st_size, "spans": len(trace),
            "launches": len(trace.meta.launches), "lost": trace.meta.losses.records_lost,
            "cost": dict(trace.meta.launches[-1].cost), "notes": {k: list(v) for k, v in trace.meta.notes.items()},
        }  # fmt: skip
    return found


def automatic(pair: Pair, case: Case, lab: GpuLab, out: Path) -> dict[str, Any]:
    """Record the same kernels without their marks, marked by warplens."""
    with tempfile.TemporaryDirectory() as folder:
        lab.unmarked = True
        if pair.language != "CUDA":
            cases = importlib.import_module(f"benchmarks.truth.{pair.maker.split('.')[0]}")
            cases.kernels = without_marks(cases.kernels, Path(folder))
        return traces(pair, case, out, "auto", AUTOMATIC_BYTES, auto=True)


def launch_once(pair: Pair) -> None:
    """Run each version once without a profile, for Nsight Compute."""
    lab = GpuLab()
    case = pair.make(lab)
    lab.move()
    for run in case.run.values():
        run()
    torch.cuda.synchronize()


def main(pair: Pair, out: Path) -> int:
    found = run(pair, out)
    (out / f"{pair.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    for step, problem in found["errors"].items():
        print(f"{pair.name}: {step} failed: {problem}", file=sys.stderr)
    return 1 if found["errors"] else 0
