"""What PC sampling says of regions whose stalls are known, against their time by marks and against Nsight Compute.

    PYTHONPATH=src python -m benchmarks.stalls --out DIR [--case NAME ...]

Each case runs in a process of its own and leaves its numbers in DIR/stalls.json:

- `known`: each region of a CUDA and of a Triton kernel does one thing, such as chasing pointers. Is its most frequent
  stall reason the expected one, and is its share of the samples its share of warp time? Are results and records the
  same as without samples? Does Nsight Compute see the same stalls? A CuPy kernel has automatic marks.
- `overhead`: kernel time with and without sampling, and the time to begin and to end it.
- `sustained`: seconds of uninterrupted launches with several periods: are samples lost?
- `neighbours`: a CUDA graph, torch.profiler, a second context, and a profile that never ends, in the same process.
- `proton`, `proton_first`, `proton_samples`: Proton after, around and instead of our sampling.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import warplens as wl
from warplens.analyse.ncu_source import parse_source_pages
from warplens.analyse.region_counters import AttributedPages, region_counters
from warplens.analyse.sampled_stalls import sampled_stalls, sampling_line
from warplens.driver import libcupti
from warplens.driver.pc_sampler import PERIOD, PcSampler

ROOT = Path(__file__).resolve().parents[1]
CUDA = r"""
#include <warplens.cuh>
extern "C" __global__ void five(const int* next, float* out, int steps, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  __shared__ float tile[1024];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  for (int k = t; k < 1024; k += blockDim.x) tile[k] = k * 0.001f;
  __syncthreads();
  float x = 0.5f + 0.001f * t, y = x, z = x;
  int at = i * 977 & ((1 << 22) - 1);
  for (int j = 0; j < steps; ++j) {
    {
      WL_REGION("fma chain");
      #pragma unroll 1
      for (int k = 0; k < 64; ++k) {
        x = x * 1.0001f + 0.0001f; x = x * 0.9999f + 0.0001f; x = x * 1.0001f + 0.0001f; x = x * 0.9999f - 0.0001f;
      }
    }
    {
      WL_REGION("mufu chain");
      #pragma unroll 1
      for (int k = 0; k < 32; ++k) { z = __sinf(z); z = __cosf(z); }
    }
    {
      WL_REGION("pointer chase");
      #pragma unroll 1
      for (int k = 0; k < 4; ++k) at = next[at];
    }
    {
      WL_REGION("bank conflicts");
      #pragma unroll 1
      for (int k = 0; k < 16; ++k) y = tile[((t & 31) * 32 + (__float_as_int(y) & 1)) & 1023];
    }
    {
      WL_REGION("barrier");
      if (t < 32) { float w = x; for (int k = 0; k < 256; ++k) w = w * 1.0001f + 0.0001f; x += w * 1e-9f; }
      __syncthreads();
    }
  }
  out[i] = x + y + z + at;
}
"""
CUPY = r"""
extern "C" __global__ void gather(const int* next, float* out, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int at = i * 977 & ((1 << 22) - 1);
  float x = 0.5f;
  for (int j = 0; j < steps; ++j) {
    at = next[at];
    for (int k = 0; k < 64; ++k) x = x * 1.0001f + 0.0001f * at;
    __syncthreads();
  }
  out[i] = x + at;
}
"""
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "five": {
        "fma chain": ("wait",),
        "mufu chain": ("short_scoreboard", "mio_throttle", "math_pipe_throttle"),
        "pointer chase": ("long_scoreboard",),
        "bank conflicts": ("short_scoreboard", "mio_throttle"),
        "barrier": ("barrier",),
    },
    "three": {"fma chain": ("wait",), "pointer chase": ("long_scoreboard",)},
}
"""By kernel and region, the reasons of which one must be the most frequent."""
BLOCKS, THREADS, STEPS, LAUNCHES = 264, 256, 64, 4
SIZE = 1 << 22
KERNELS = "regex:^(five|three)"


def chain() -> np.ndarray:
    """A permutation that is one cycle."""
    order = np.random.default_rng(0).permutation(SIZE)
    following = np.empty(SIZE, np.int32)
    following[order] = np.roll(order, -1)
    return following


class CudaProgram:
    """The CUDA kernel and its data."""

    def __init__(self) -> None:
        import torch

        import warplens.cuda as wlcu

        self.torch = torch
        self.module = wlcu.compile(CUDA, name="five.cu")
        self.next = torch.from_numpy(chain()).cuda()
        self.out = torch.empty(BLOCKS * THREADS, device="cuda")

    def launch(self, count: int = 1) -> None:
        for _ in range(count):
            self.module["five"].launch(BLOCKS, THREADS, self.next, self.out, np.int32(STEPS))

    def milliseconds(self, count: int) -> float:
        """The time of a launch."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.launch(count)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / count

    def digest(self) -> str:
        return hashlib.sha256(self.out.cpu().numpy().tobytes()).hexdigest()[:16]


class TritonProgram(CudaProgram):
    """The Triton kernel and its data."""

    def __init__(self) -> None:
        import torch

        from benchmarks.lib.stall_kernel import three

        self.torch, self.kernel = torch, three
        self.next = torch.from_numpy(chain()).cuda()
        self.out = torch.empty(BLOCKS * 128, device="cuda")

    def launch(self, count: int = 1) -> None:
        for _ in range(count):
            self.kernel[(BLOCKS,)](self.next, self.out, STEPS, BLOCK=128, num_warps=4)


def measured(program: CudaProgram) -> tuple[dict[str, Any], wl.Trace]:
    """Record a program without and with samples."""
    program.launch(2)
    plain = program.digest()
    with wl.profile() as before:
        program.launch(LAUNCHES)
    start = time.perf_counter()
    with wl.profile(stalls=True) as prof:
        program.launch(LAUNCHES)
    seconds = time.perf_counter() - start
    found = compared(prof.trace)
    losses = prof.trace.meta.losses
    return {
        "identical": program.digest() == plain,
        "seconds": round(seconds, 2),
        "line": sampling_line(prof.trace),
        "kernel_us": [mean_us(before.trace), mean_us(prof.trace)],
        "records": [before.trace.meta.losses.records_kept, losses.records_kept],
        "lost": losses.records_lost,
        "clean": losses.clean,
        **found,
    }, prof.trace


def mean_us(trace: wl.Trace) -> float:
    return round(float(np.mean([one.end_ns - one.begin_ns for one in trace.launches])) / 1e3, 2)


def compared(trace: wl.Trace) -> dict[str, Any]:
    """Shares of samples beside shares of warp time, and the most frequent reasons beside the expected ones."""
    counters = sampled_stalls(trace)
    shares = {row.region: row.share for row in trace.stats(merge_variants=True)}
    rows, right = {}, []
    for one in counters.regions:
        reasons = list(one.stall_shares.items())
        wanted = EXPECTED.get(one.kernel, {}).get(one.region)
        if wanted:
            right.append(reasons[0][0] in wanted if reasons else False)
        rows[one.region] = {
            "samples": one.samples,
            "share": round(one.share, 4),
            "time_share": round(shares.get(one.region, 0.0), 4),
            "stalls": {name: round(share, 4) for name, share in reasons[:4]},
            "expected": wanted,
            "basis": one.basis,
        }
    pairs = np.array([[row["share"], row["time_share"]] for row in rows.values()]) if rows else np.zeros((1, 2))
    return {
        "regions": rows,
        "as_expected": f"{sum(right)} of {len(right)}",
        "largest_difference": round(float(np.abs(pairs[:, 0] - pairs[:, 1]).max()), 4),
        "correlation": round(float(np.corrcoef(pairs.T)[0, 1]), 4) if len(pairs) > 2 else None,
        "notes": list(counters.notes),
    }


def cupy() -> dict[str, Any]:
    import cupy as cp

    kernel = cp.RawKernel(CUPY, "gather")
    following, out = cp.asarray(chain()), cp.empty(BLOCKS * THREADS, cp.float32)
    with wl.profile(auto=True, stalls=True) as prof:
        for _ in range(LAUNCHES):
            kernel((BLOCKS,), (THREADS,), (following, out, np.int32(64)))
    return compared(prof.trace) | {"line": sampling_line(prof.trace)}


def known() -> dict[str, Any]:
    programs = {"cuda": CudaProgram(), "triton": TritonProgram()}
    found = {name: measured(program) for name, program in programs.items()}
    said: dict[str, Any] = {name: result for name, (result, _) in found.items()}
    with wl.profile(stalls=True, launches=1) as prof:
        programs["triton"].launch(20)
    pages = prof.trace.meta.pc_samples["codes"]
    said["quota of 1"] = {
        "marked": sum(one["total"] for one in pages if not one["plain"]),
        "plain": max(one["total"] for one in pages if one["plain"]),
        "files": [one["file"] for one in pages if one["plain"]],
        "notes": list(sampled_stalls(prof.trace).notes),
    }
    print(json.dumps(said), flush=True)
    said["cupy"] = cupy()
    print(json.dumps(said), flush=True)
    return said | {"ncu": ncu([trace for _, trace in found.values()])}


def once() -> dict[str, Any]:
    """What runs under Nsight Compute."""
    for program in (CudaProgram(), TritonProgram()):
        with wl.profile():
            program.launch(1)
    return {}


def ncu(traces: Sequence[wl.Trace]) -> dict[str, Any]:
    """The stalls of the same regions by Nsight Compute."""
    said: dict[str, Any] = {}
    tool, report = shutil.which("ncu"), OUT / "stalls.ncu-rep"
    if tool is None:
        return {"problem": "ncu is not on PATH"}
    command = [tool, "--section", "SourceCounters", "--clock-control", "none", "--import-source", "yes"]
    command += ["--kernel-name", KERNELS, "--launch-count", "8", "--force-overwrite", "--export", str(report)]
    command += [sys.executable, "-m", "benchmarks.stalls", "--out", str(OUT), "--here", "--case", "once"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60)
    page = [tool, "--import", str(report), "--page", "source", "--csv", "--print-source", "sass"]
    text = subprocess.run(page, capture_output=True, text=True, check=False).stdout
    report.unlink(missing_ok=True)
    try:
        pages = parse_source_pages(text)
    except wl.WarplensError as error:
        return {"problem": f"{error}; {done.stderr[-500:]}"}
    for trace in traces:
        theirs = region_counters(trace, pages)
        said |= beside(sampled_stalls(trace), theirs)
        said[f"{trace.kernels[0]} notes"] = list(theirs.notes)
    return said


def beside(ours: AttributedPages, theirs: AttributedPages) -> dict[str, Any]:
    """The stall shares of two tools, and the largest difference between them."""
    found = {}
    other = {(one.kernel, one.region): one for one in theirs.regions}
    for one in ours.regions:
        match = other.get((one.kernel, one.region))
        if match is not None:
            mine, its = one.stall_shares, match.stall_shares
            found[f"{one.kernel}: {one.region}"] = {
                "share": [round(one.share, 4), round(match.share, 4)],
                "top": [next(iter(mine), ""), next(iter(its), "")],
                "samples": [one.samples, match.samples],
                "largest_difference": round(
                    max((abs(mine.get(name, 0) - its.get(name, 0)) for name in {*mine, *its}), default=0.0), 4
                ),
            }
    return found


def overhead() -> dict[str, Any]:
    program = CudaProgram()
    program.launch(20)
    times: dict[str, list[float]] = {"without": [], "with": []}
    seconds: dict[str, list[float]] = {"begin": [], "end": []}
    lib, context = libcupti.cupti(), current_context()
    for _ in range(6):
        times["without"].append(program.milliseconds(200))
        start = time.perf_counter()
        sampler = PcSampler(lib, context)
        seconds["begin"].append(round(time.perf_counter() - start, 4))
        program.launch(3)
        times["with"].append(program.milliseconds(200))
        start = time.perf_counter()
        sampler.stop()
        seconds["end"].append(round(time.perf_counter() - start, 4))
    return {
        "ms": {name: median(values) for name, values in times.items()},
        "all": times,
        "ratio": round(median(times["with"]) / median(times["without"]), 4),
        "seconds": seconds,
    }


def current_context() -> int:
    found = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(found))
    return int(found.value or 0)


def sustained() -> dict[str, Any]:
    program = CudaProgram()
    program.launch(20)
    said: dict[str, Any] = {"plain_ms": program.milliseconds(500)}
    for period in (13, PERIOD):
        sampler = PcSampler(libcupti.cupti(), current_context(), period=period)
        begin, cpu, reads, times = time.perf_counter(), time.process_time(), [], []
        while time.perf_counter() - begin < 3:
            times.append(program.milliseconds(500))
            reads.append(sampler.read())
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        start = time.perf_counter()
        found = sampler.stop()
        said[f"period {period}"] = {
            "ms": median(times),
            "reads": [one for one in reads if one],
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "stop_seconds": round(time.perf_counter() - start, 3),
            "samples": found.total,
            "dropped": found.dropped,
            "overflows": found.overflows,
            "expected": round(132 * seconds * 1.9e9 / (1 << period)),
        }
        print(json.dumps(said), flush=True)
    return said


def neighbours() -> dict[str, Any]:
    program = TritonProgram()
    program.launch(2)
    torch = program.torch
    said: dict[str, Any] = {}
    graph = torch.cuda.CUDAGraph()
    with wl.profile(stalls=True) as prof:
        with torch.cuda.graph(graph):
            program.launch(1)
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()
    said["graph"] = [len(prof.trace.launches), sampling_line(prof.trace), list(sampled_stalls(prof.trace).notes)]
    print(json.dumps(said), flush=True)
    with wl.profile(stalls=True, torch=True) as prof:
        program.launch(5)
    said["torch"] = [sampling_line(prof.trace), prof.torch.problem, len(prof.trace.launches)]
    print(json.dumps(said), flush=True)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler, wl.profile(stalls=True) as prof:
        program.launch(5)
    said["inside torch.profiler"] = [sampling_line(prof.trace), sum(one.count for one in profiler.key_averages())]
    print(json.dumps(said), flush=True)
    cu, first, second = ctypes.CDLL("libcuda.so.1"), current_context(), ctypes.c_void_p()
    cu.cuCtxCreate_v2(ctypes.byref(second), 0, 0)
    sampler = PcSampler(libcupti.cupti(), first)
    try:
        PcSampler(libcupti.cupti(), int(second.value or 0)).stop()
        said["second context"] = "sampled"
    except wl.WarplensError as error:
        said["second context"] = str(error)
    cu.cuCtxSetCurrent(ctypes.c_void_p(first))
    program.launch(50)
    torch.cuda.synchronize()
    said["first context"] = sampler.stop().total
    print(json.dumps(said), flush=True)
    wl.profile(stalls=True).__enter__()
    program.launch(3)
    return said | {"left running": True}


def proton() -> dict[str, Any]:
    """Proton begins after a profile with samples has ended."""
    said: dict[str, Any] = {}
    program = TritonProgram()
    with wl.profile(stalls=True) as prof:
        program.launch(5)
    said["sampled"] = sampling_line(prof.trace)
    return said | beside_proton(program, None)


def proton_first() -> dict[str, Any]:
    """Proton runs while a profile samples."""
    return beside_proton(TritonProgram(), None)


def proton_samples() -> dict[str, Any]:
    """Proton samples itself."""
    return beside_proton(TritonProgram(), "pcsampling")


def beside_proton(program: CudaProgram, mode: str | None) -> dict[str, Any]:
    import triton.profiler as profiler

    program.launch(2)
    program.torch.cuda.synchronize()
    try:
        session = profiler.start(str(OUT / "proton"), backend="cupti", mode=mode)
    except RuntimeError as error:
        return {"proton": str(error)}
    program.launch(2)
    with wl.profile(stalls=True) as prof:
        program.launch(5)
    said: dict[str, Any] = {"beside": sampling_line(prof.trace), "launches": len(prof.trace.launches)}
    print(json.dumps(said), flush=True)
    program.launch(2)
    program.torch.cuda.synchronize()
    profiler.finalize(session)
    (OUT / "proton.hatchet").unlink(missing_ok=True)
    return said | {"finalized": True}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    one.__name__: one for one in (known, overhead, sustained, neighbours, proton, proton_first, proton_samples, once)
}
OUT = Path()


def main() -> None:
    global OUT
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, help="Folder for the results.")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="Run only this case (repeatable).")
    parser.add_argument("--here", action="store_true", help="Run the cases in this process.")
    given = parser.parse_args()
    OUT = Path(given.out)
    OUT.mkdir(parents=True, exist_ok=True)
    if given.here:
        for name in given.case:
            print(json.dumps(CASES[name](), default=str), flush=True)
        return
    found: dict[str, Any] = {"libcupti": libcupti.find_cupti()}
    for name in given.case or [case for case in CASES if case != "once"]:
        found[name] = in_process(name)
        print(f"{name}: {json.dumps(found[name])[:1500]}", flush=True)
        (OUT / "stalls.json").write_text(json.dumps(found, indent=1))


def in_process(name: str) -> dict[str, Any]:
    """Run a case in a process of its own; the latest line that it printed is its result."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.stalls", "--out", str(OUT), "--here", "--case", name]
    environment = {**os.environ, "WARPLENS_VERIFY": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    try:
        output, errors = process.communicate(timeout=80)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    said: dict[str, Any] = json.loads(lines[-1]) if lines else {"output": output[-1000:]}
    return said | {"exit": process.returncode, "took": round(time.perf_counter() - start, 1), "stderr": errors[-1500:]}


if __name__ == "__main__":
    main()
