"""Host time of a launch by each library: plain, done with, and recorded. Needs a GPU and torch."""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt
from benchmarks.lib.timed_parts import rounds

ROUNDS, PER_ROUND = 15, 200
Timed = Callable[[int], list[float]]
"""Microseconds of the launching thread for each of so many launches, back to back."""


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


def in_turn(
    call: Callable[[], Any], unrelated: Callable[[], Any] | None = None, timed: Timed | None = None, **options: Any
) -> dict[str, Any]:
    """Host time of a launch: plain, once its quota is used up, recorded, and of a kernel that is not profiled; each of
    some rounds measures all of them, so that what else the machine does meets all alike. `timed` measures launches
    where it is not Python that makes them."""
    timed = timed or (lambda launches: timed_us(call, launches))
    times: dict[str, list[list[float]]] = {}
    for _ in rounds(ROUNDS, least=2):
        times.setdefault("plain", []).append(timed(PER_ROUND))
        with wl.profile(launches=1, **options):
            for _ in range(20):
                call()
            times.setdefault("closed", []).append(timed(PER_ROUND))
            if unrelated is not None:
                times.setdefault("not_profiled", []).append(timed_us(unrelated, PER_ROUND))
        if unrelated is not None:
            times.setdefault("plain_other", []).append(timed_us(unrelated, PER_ROUND))
        with wl.profile(**options) as prof:
            for _ in range(40):
                call()
            time.sleep(0.02)  # the first launches come home and say how much memory the others need
            times.setdefault("recorded", []).append(timed(PER_ROUND))
        assert len(prof.trace.meta.launches) >= PER_ROUND, prof.notes
    found: dict[str, Any] = {name: summary([us for some in all_ for us in some]) for name, all_ in times.items()}
    for name, base in (("closed", "plain"), ("recorded", "plain"), ("not_profiled", "plain_other")):
        if name in times:
            pairs = zip(times[name], times[base], strict=True)
            more = [statistics.median(one) - statistics.median(other) for one, other in pairs]
            means = zip(times[name], times[base], strict=True)
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


CPP_SOURCE = """
#include <chrono>
__global__ void doubled(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
extern "C" int launches(float *x, float *y, int n, int count, double *us) {
    auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < count; i++) {
        doubled<<<132, 128>>>(x, y, n);
        auto now = std::chrono::steady_clock::now();
        us[i] = std::chrono::duration<double, std::micro>(now - before).count();
        before = now;
    }
    return cudaGetLastError();
}
"""


def cpp_host() -> dict[str, Any]:
    """A kernel that nvcc compiled, launched from C++, where nvcc is installed."""
    x, y = torch.ones(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "doubled.cu", Path(folder) / "doubled.so"
        source.write_text(CPP_SOURCE)
        arch = f"-gencode=arch=compute_{major}{minor},code=[sm_{major}{minor},compute_{major}{minor}]"
        command = ["nvcc", "-std=c++17", "-O2", "-shared", "-Xcompiler=-fPIC", "-cudart=shared", arch]
        try:
            subprocess.run([*command, str(source), "-o", str(library)], check=True, capture_output=True, timeout=60)
        except FileNotFoundError:
            return {"not measured": "nvcc is not installed"}
        except subprocess.CalledProcessError as error:
            return {"failed": error.stderr.decode(errors="replace")[-1500:]}
        native = ctypes.CDLL(str(library))

        def timed(launches: int) -> list[float]:
            us = (ctypes.c_double * launches)()
            pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
            torch.cuda.synchronize()
            status = native.launches(*pointers, 1 << 14, launches, us)
            torch.cuda.synchronize()
            assert not status, f"CUDA error {status}"
            return list(us)

        timed(1)
        return in_turn(lambda: timed(1), timed=timed, auto="all")
