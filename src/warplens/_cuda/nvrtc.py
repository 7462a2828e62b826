"""CUDA source to cubin with NVRTC."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from warplens.errors import WarplensError
from warplens.record.header import INCLUDE


def compile_cubin(source: str, name: str, arch: str, options: Sequence[str]) -> bytes:
    """The cubin of `source` for `arch` (like "sm_90a"); a compile error is raised with the compiler's own words."""
    return _compile(source, name, arch, options, "CUBIN")


def compile_ptx(source: str, name: str, arch: str, options: Sequence[str]) -> str:
    """The PTX of `source` for `arch`."""
    virtual = arch.replace("sm_", "compute_")
    return _compile(source, name, virtual, options, "PTX").rstrip(b"\0").decode()


def _compile(source: str, name: str, arch: str, options: Sequence[str], kind: str) -> bytes:
    nvrtc = _bindings()
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    _check(nvrtc, status)
    flags = [f"--gpu-architecture={arch}", "--std=c++17", f"--include-path={INCLUDE}", *options]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        if int(status):
            log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise WarplensError(f"{name}: NVRTC could not compile it for {arch} with {' '.join(options)}:\n{log}")
        return _bytes(nvrtc, program, getattr(nvrtc, f"nvrtcGet{kind}Size"), getattr(nvrtc, f"nvrtcGet{kind}"))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def cuda_include() -> str | None:
    """Where the CUDA headers lie, if a toolkit is found; kernels that include none of them need none."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return None
    found = find_nvidia_header_directory("cudart")
    return str(found) if found else None


def _bindings() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise WarplensError(
            "compiling CUDA source needs NVRTC: pip install 'warplens[cuda]' "
            f"(cuda-bindings and nvidia-cuda-nvrtc; this is {sys.executable})"
        ) from None
    return nvrtc


def _bytes(nvrtc: Any, program: Any, size_of: Any, fill: Any) -> bytes:
    status, size = size_of(program)
    _check(nvrtc, status)
    data = b" " * int(size)
    (status,) = fill(program, data)
    _check(nvrtc, status)
    return data


def _text(nvrtc: Any, program: Any, size_of: Any, fill: Any) -> str:
    return _bytes(nvrtc, program, size_of, fill).rstrip(b"\0").decode(errors="replace").strip()


def _check(nvrtc: Any, status: Any) -> None:
    if int(status):
        text = nvrtc.nvrtcGetErrorString(status)[1]
        raise WarplensError(f"NVRTC failed: {text.decode() if text else status}")
