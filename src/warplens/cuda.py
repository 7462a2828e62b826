"""CUDA C++ from Python: compile and launch with NVRTC, or pass a buffer to a launch by CuPy, cuda.core or torch.

import warplens as wl
import warplens.cuda as wlcu

module = wlcu.compile("gemm.cu")                   # or the source itself
with wl.profile("gemm.warplens") as prof:
    module["gemm"].launch(grid, block, a, b, c)    # the kernel's last parameter, wl::Buffer, is added

kernel = cupy.RawKernel(source, "gemm", options=wlcu.flags())
with wl.profile() as prof:
    kernel(grid, block, (a, b, c, wlcu.buffer(grid, block, kernel="gemm")))
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warplens.calibrate.cuda_marks import measure, measure_woven
from warplens.calibrate.known_lengths import Calibration
from warplens.driver.kernel_arguments import dim3, stream_handle
from warplens.driver.libcuda import driver
from warplens.errors import UsageError, WarplensError
from warplens.frontends.cuda.measured_cost import calibrations
from warplens.frontends.cuda.module import Kernel, Module, new_buffer, wanted_by
from warplens.launch.direct import DIRECT
from warplens.record.c_header import INCLUDE

_ZERO: np.uint64 = np.uint64(0)
_UNNAMED = "kernel.cu"
"""What source is called that was given as text."""

__all__ = ["Calibration", "Kernel", "Module", "buffer", "calibrate", "compile", "flags", "include_dir"]


def compile(
    source: str | os.PathLike[str],
    *,
    arch: str | None = None,
    options: str | Sequence[str] = (),
    name: str = "",
    woven: bool = True,
) -> Module:
    """Compile CUDA source, given as text or as a path, for `arch` (default: this GPU) with NVRTC `options`.

    Outside a profile the kernels run without marks. Inside a profile the module is compiled again with marks: woven
    into the PTX, which costs least, or, with woven=False or if they cannot be woven, recorded directly by the header.
    """
    text, title = _source(source)
    if not text.strip():
        empty = title if title != _UNNAMED else "compile()"
        raise UsageError(f"{empty}: the source is empty; give CUDA source or the path of a .cu file")
    given = shlex.split(options) if isinstance(options, str) else options
    module = Module(text, name or title, arch or _arch_here(), given, woven=woven)
    module.cubin("off")
    return module


def calibrate(full: str = "stop") -> Calibration:
    """Measure the cost of direct and woven marks on this GPU, for every way that the weaver stores records.

    Later launches with the same `full` carry the result, which `Trace.time_shift` uses. Returns the cost of woven marks
    in a kernel whose warps do not diverge, or of direct marks if nothing can be woven.
    """
    flags(full)
    found = {DIRECT: measure(driver(), _arch_here(), full), **measure_woven(driver(), _arch_here(), full)}
    for store, result in found.items():
        calibrations[result.device, store, full] = result.cost
    return next((found[store] for store in ("spread", "mixed") if store in found), found[DIRECT])


def include_dir() -> str:
    """Return the include folder of warplens.cuh, warplens_host.h and sm_profiler.h."""
    return str(INCLUDE)


def flags(full: str = "stop", *, off: bool = False) -> tuple[str, ...]:
    """Return the compiler options for nvcc, NVRTC, CuPy and torch's load_inline; `full` is as in `wl.profile`."""
    if full not in ("stop", "ring"):
        raise UsageError(f"full={full!r}: must be 'stop' (keep the first records) or 'ring' (keep the latest)")
    ring = ("-DWARPLENS_RING=1",) if full == "ring" else ()
    return (f"-I{include_dir()}", "-std=c++17", *(("-DWARPLENS=0",) if off else ring))


def buffer(
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *,
    kernel: str = "kernel",
    every_thread: bool = False,
    stream: Any = None,
) -> np.uint64:
    """Return a wl::Buffer for one launch by another library: pass it as the kernel's last argument (int() for torch).

    Outside a profile it is 0, and the kernel records nothing. Give the launch's `stream` to avoid waiting until the
    buffer is cleared.
    """
    profile = wanted_by(kernel)
    if profile is None:
        return _ZERO
    blocks, threads = dim3(grid, "grid"), dim3(block, "block")
    own = driver().stream() if stream is None else None
    handle = own if own is not None else stream_handle(stream)
    address = new_buffer(profile, kernel, blocks, threads, every_thread=every_thread, stream=handle, names=None)
    if own is not None:
        driver().synchronize_stream(own)
        driver().destroy_stream(own)
    handle_bits: np.uint64 = np.uint64(address)
    return handle_bits


def _arch_here() -> str:
    capability = driver().device().capability
    return "sm_" + capability.replace(".", "") + ("a" if capability >= "9" or len(capability) > 3 else "")


def _source(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the source text and its name. A one-line string without braces is a path, unless it is blank."""
    if isinstance(source, str) and ("\n" in source or "{" in source or not source.strip()):
        return source, _UNNAMED
    path = Path(source)
    try:
        return path.read_bytes().decode("utf-8-sig", "surrogateescape"), str(path)
    except OSError as error:
        raise WarplensError(f"{path}: {error.strerror}; give CUDA source or the path of a .cu file") from None
