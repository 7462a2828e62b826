"""How CUPTI's PC sampling behaves on this machine, case by case, each in a process of its own.

PYTHONPATH=src python -m benchmarks.stall_probe --out DIR [--case NAME ...]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from warplens.driver import libcupti
from warplens.driver.pc_sampler import CONTINUOUS, SERIALIZED, Attribute, PcSampler, cubin_crc

CUDA = r"""
#include <warplens.cuh>
extern "C" __global__ void four(const int* next, const float* table, float* out, int steps, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  __shared__ float tile[32 * 33 + 1024];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  for (int k = t; k < 32 * 33 + 1024; k += blockDim.x) tile[k] = k * 0.001f;
  __syncthreads();
  float x = 0.5f + 0.001f * t, y = x;
  int at = i * 977 & ((1 << 22) - 1);
  for (int j = 0; j < steps; ++j) {
    {
      WL_REGION("chain");
      #pragma unroll 1
      for (int k = 0; k < 64; ++k) {
        x = x * 1.0001f + 0.0001f; x = x * 0.9999f + 0.0001f; x = x * 1.0001f + 0.0001f; x = x * 0.9999f - 0.0001f;
      }
    }
    {
      WL_REGION("chase");
      #pragma unroll 1
      for (int k = 0; k < 4; ++k) at = next[at];
    }
    {
      WL_REGION("conflict");
      #pragma unroll 1
      for (int k = 0; k < 32; ++k) y = tile[((t & 31) * 32 + (__float_as_int(y) & 1)) & 1023];
    }
    {
      WL_REGION("barrier");
      if (t < 32) { float z = x; for (int k = 0; k < 256; ++k) z = z * 1.0001f + 0.0001f; x += z * 1e-9f; }
      __syncthreads();
    }
  }
  out[i] = x + y + at + table[0];
}
"""
BLOCKS, THREADS, STEPS = 132 * 2, 256, 32


class Program:
    """The kernel and its data."""

    def __init__(self, woven: bool = True) -> None:
        import torch

        import warplens.cuda as wlcu

        self.torch = torch
        self.module = wlcu.compile(CUDA, name="four.cu", woven=woven)
        size = 1 << 22
        order = np.random.default_rng(0).permutation(size)
        following = np.empty(size, np.int32)
        following[order] = np.roll(order, -1)
        self.next = torch.from_numpy(following).cuda()
        self.table = torch.zeros(16, device="cuda")
        self.out = torch.empty(BLOCKS * THREADS, device="cuda")

    def launch(self, count: int = 1) -> None:
        for _ in range(count):
            self.module["four"].launch(BLOCKS, THREADS, self.next, self.table, self.out, np.int32(STEPS))

    def ms(self, count: int = 20) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        start.record()
        self.launch(count)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / count

    def digest(self) -> str:
        import hashlib

        return hashlib.sha256(self.out.cpu().numpy().tobytes()).hexdigest()[:12]


def context() -> int:
    found = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(found))
    return int(found.value or 0)


def summary(sampler: PcSampler, top: int = 6) -> dict[str, Any]:
    found = sampler.samples
    functions: dict[str, Counter[str]] = {}
    places: dict[str, Counter[int]] = {}
    for (crc, name, offset), counts in found.counts.items():
        key = f"{crc:#x} {name[:60]}"
        functions.setdefault(key, Counter()).update(counts)
        places.setdefault(key, Counter())[offset] += sum(counts.values())
    return {
        "total": found.total,
        "dropped": found.dropped,
        "foreign": found.foreign,
        "overflows": found.overflows,
        "records": len(found.counts),
        "functions": {key: [sum(one.values()), dict(one.most_common(8))] for key, one in functions.items()},
        "places": {
            key: [min(one), max(one), {hex(at): n for at, n in one.most_common(top)}] for key, one in places.items()
        },
    }


def timed(name: str, work: Callable[[], Any], said: dict[str, Any]) -> Any:
    start = time.perf_counter()
    try:
        return work()
    finally:
        said.setdefault("seconds", {})[name] = round(time.perf_counter() - start, 4)


def sampled(program: Program, *, launches: int = 50, wait: float = 0.0, **options: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"options": {key: value for key, value in options.items()}}
    free = program.torch.cuda.mem_get_info()[0]
    lib = timed("load", libcupti.cupti, said)
    sampler = timed("start", lambda: PcSampler(lib, context(), **options), said)
    said["reasons"] = sampler.reasons
    said["bytes_taken"] = free - program.torch.cuda.mem_get_info()[0]
    for name in ("PERIOD", "SCRATCH", "HARDWARE", "MODE", "START_STOP", "SLEEP"):
        try:
            said.setdefault("attributes", {})[name] = sampler.attribute(getattr(Attribute, name))
        except Exception as error:
            said.setdefault("attributes", {})[name] = str(error)
    said["ms"] = timed("launches", lambda: program.ms(launches), said)
    said["digest"] = program.digest()
    time.sleep(wait)
    said["read"] = timed("read", sampler.read, said)
    timed("stop", sampler.stop, said)
    said["bytes_left"] = free - program.torch.cuda.mem_get_info()[0]
    said |= summary(sampler)
    return said


def continuous() -> dict[str, Any]:
    """Enabled after the module is loaded and has run; then again, several times, with several periods."""
    program = Program()
    program.launch(5)
    said: dict[str, Any] = {"plain_ms": program.ms(), "plain_digest": program.digest()}
    said["default"] = sampled(program)
    for period in (8, 10, 12, 14, 16, 18):
        said[f"period {period}"] = short(sampled(program, period=period, launches=30))
    said["small buffer"] = short(sampled(program, period=8, hardware_bytes=16 << 20, launches=30))
    said["after_ms"] = program.ms()
    said["no control"] = short(sampled(program, start_stop=False, launches=30))
    return said


def short(said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key not in ("reasons", "places")}


def serialized() -> dict[str, Any]:
    program = Program()
    program.launch(5)
    said: dict[str, Any] = {"plain_ms": program.ms()}
    said["serialized"] = sampled(program, mode=SERIALIZED)
    said["no control"] = short(sampled(program, mode=SERIALIZED, start_stop=False))
    return said


def early() -> dict[str, Any]:
    """Enabled before any module of ours is loaded."""
    import torch

    torch.zeros(1, device="cuda")
    lib = libcupti.cupti()
    sampler = PcSampler(lib, context(), mode=CONTINUOUS)
    program = Program()
    program.launch(30)
    torch.cuda.synchronize()
    sampler.stop()
    return {"path": lib.path, "version": lib.version, **summary(sampler)}


def marked() -> dict[str, Any]:
    """Woven kernels of a profile, with a thread that reads; are their cubins recognised, do records stay whole?"""
    import warplens as wl
    from warplens.launch.assembled_code import kept_cubin
    from warplens.profiling.region_check import collected_codes

    program = Program()
    program.launch(3)
    said: dict[str, Any] = {}
    lib = libcupti.cupti()
    for sample in (False, True):
        sampler = PcSampler(lib, context(), period=10) if sample else None
        going = True

        def reading() -> None:
            while going:
                time.sleep(0.05)
                sampler.read()

        thread = threading.Thread(target=reading) if sampler else None
        if thread:
            thread.start()
        with collected_codes() as codes, wl.profile() as prof:
            said[f"ms {sample}"] = program.ms(10)
        going = False
        if thread and sampler:
            thread.join()
            sampler.stop()
            said["marked"] = summary(sampler)
            said["crcs"] = {}
            for digest, (kernel, code) in codes.items():
                cubin = code.cubin or kept_cubin(code.ptx)
                said["crcs"][digest] = [kernel, code.symbol, f"{cubin_crc(lib, cubin):#x}" if cubin else None]
        trace = prof.trace
        said[f"losses {sample}"] = str(trace.meta.losses)
        said[f"stats {sample}"] = [
            [one.region, one.count, round(one.mean, 1), round(one.share, 4)] for one in trace.stats()
        ]
        if sampler:
            said["verified"] = list(trace.meta.verified.values()) if hasattr(trace.meta, "verified") else None
            trace.save(str(OUT / "marked.warplens"), force=True) if hasattr(trace, "save") else None
    return said


def triton_kernel() -> dict[str, Any]:
    """Triton: plain and woven kernels have one name; CUDA graphs; torch.profiler before and after."""
    import torch
    import triton

    import warplens as wl

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "attention"))
    import triton_flash

    from warplens.profiling.region_check import collected_codes

    q, k, v = (torch.randn(2, 8, 2048, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    triton_flash.run(q, k, v, out)
    torch.cuda.synchronize()
    lib = libcupti.cupti()
    said: dict[str, Any] = {"path": lib.path, "version": lib.version, "triton": triton.__version__}
    sampler = PcSampler(lib, context(), period=10)
    for _ in range(20):
        triton_flash.run(q, k, v, out)
    with collected_codes() as codes, wl.profile():
        for _ in range(20):
            triton_flash.run(q, k, v, out)
    torch.cuda.synchronize()
    sampler.stop()
    said["both"] = summary(sampler)
    said["woven"] = {
        digest: [kernel, code.symbol, f"{cubin_crc(lib, code.cubin):#x}" if code.cubin else None]
        for digest, (kernel, code) in codes.items()
    }
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        triton_flash.run(q, k, v, out)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            triton_flash.run(q, k, v, out)
    sampler = PcSampler(lib, context(), period=10)
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    sampler.stop()
    said["graph"] = summary(sampler)
    for order in ("profiler first", "sampler first"):
        try:
            said[order] = beside_profiler(order == "profiler first", lib, lambda: triton_flash.run(q, k, v, out))
        except Exception:
            said[order] = traceback.format_exc()[-600:]
    return said


def beside_profiler(first: bool, lib: Any, run: Callable[[], None]) -> dict[str, Any]:
    import torch

    said: dict[str, Any] = {}
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    sampler = None if first else PcSampler(lib, context(), period=10)
    profiler.start()
    if sampler is None:
        sampler = PcSampler(lib, context(), period=10)
    for _ in range(10):
        run()
    torch.cuda.synchronize()
    if first:
        said["stopped"] = bool(sampler.stop())
    profiler.stop()
    if not first:
        said["stopped"] = bool(sampler.stop())
    said["torch kernels"] = sum(one.count for one in profiler.key_averages())
    return said | short(summary(sampler))


def proton() -> dict[str, Any]:
    """Proton with its own PC sampling, and with plain CUPTI, at the same time."""
    import torch
    import triton.profiler as profiler

    program = Program()
    program.launch(3)
    torch.cuda.synchronize()
    said: dict[str, Any] = {}
    for backend, mode in (("cupti", None), ("cupti", "pcsampling")):
        key = f"{backend} {mode}"
        try:
            session = profiler.start(str(OUT / "proton"), backend=backend, mode=mode)
            program.launch(3)
            torch.cuda.synchronize()
            try:
                lib = libcupti.cupti()
                sampler = PcSampler(lib, context(), period=10)
                program.launch(10)
                torch.cuda.synchronize()
                sampler.stop()
                said[key] = {"path": lib.path, **short(summary(sampler))}
            except Exception as error:
                said[key] = f"{type(error).__name__}: {error}"
            profiler.finalize(session)
        except Exception as error:
            said[f"{key} itself"] = f"{type(error).__name__}: {error}"
    return said


def contexts() -> dict[str, Any]:
    """Two contexts at once; sampling twice in one; a program that exits without stopping."""
    program = Program()
    program.launch(3)
    program.torch.cuda.synchronize()
    lib, first = libcupti.cupti(), context()
    said: dict[str, Any] = {}
    sampler = PcSampler(lib, first, period=10)
    try:
        PcSampler(lib, first, period=10)
        said["twice"] = "accepted"
    except Exception as error:
        said["twice"] = str(error)
    cuda, second = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    said["created"] = cuda.cuCtxCreate_v2(ctypes.byref(second), 0, 0)
    try:
        other = PcSampler(lib, int(second.value or 0), period=10)
        said["second context"] = "accepted"
        other.stop()
    except Exception as error:
        said["second context"] = str(error)
    cuda.cuCtxSetCurrent(ctypes.c_void_p(first))
    program.launch(10)
    program.torch.cuda.synchronize()
    try:
        sampler.stop()
        said["first"] = short(summary(sampler))
    except Exception as error:
        said["first"] = str(error)
    print(json.dumps(said), flush=True)
    PcSampler(lib, first, period=10)  # and exit
    program.launch(10)
    return said


CASES = {one.__name__: one for one in (continuous, early, marked, triton_kernel, serialized, contexts, proton)}
OUT = Path(".")


def main() -> None:
    global OUT
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--here", action="store_true", help="run the cases in this process")
    given = parser.parse_args()
    OUT = Path(given.out)
    OUT.mkdir(parents=True, exist_ok=True)
    if given.here:
        for name in given.case:
            print(json.dumps(CASES[name](), default=str), flush=True)
        return
    found: dict[str, Any] = {"libcupti": libcupti.find_cupti()}
    for name in given.case or CASES:
        start = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.stall_probe", "--out", str(OUT), "--here", "--case", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=45, env=os.environ)
            lines = done.stdout.strip().splitlines()
            try:
                found[name] = json.loads(lines[-1])
            except (IndexError, ValueError):
                found[name] = {"stdout": done.stdout[-2000:]}
            found[f"{name} exit"] = [done.returncode, done.stderr[-3000:]]
        except subprocess.TimeoutExpired as late:
            found[name] = {"timeout": str(late.stderr)[-2000:], "stdout": str(late.stdout)[-2000:]}
        print(f"{name}: {time.perf_counter() - start:.1f} s", json.dumps(found[name])[:1500], flush=True)
        (OUT / "probe.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
