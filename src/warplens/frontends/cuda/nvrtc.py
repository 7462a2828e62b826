"""Compile CUDA source to a cubin or to PTX with NVRTC."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warplens.errors import WarplensError
from warplens.record.c_header import INCLUDE

_MISTAKES = {
    "'two_wl_Kernels_in_one_function": "two recordings are opened in one function. Write `wl::Kernel k(prof);` once, "
    "on the kernel's first line, not in a function that it calls twice; a function with a wl::Callee is __noinline__",
    "'mark_outside_a_kernel_with_wl_Kernel": "a mark stands where no track is open. Begin the kernel with `wl::Kernel "
    "k(prof);`; a function that is not inlined takes a wl::Link& and begins with `wl::Callee here(link);` (see "
    "warplens_device.h)",
}
"""What a complaint of ptxas about a register of warplens_ptx.h means: it is declared twice, or not at all."""


def compile_cubin(source: str, name: str, arch: str, options: Sequence[str], shown: str | None = None) -> bytes:
    """Compile `source` for `arch` (like "sm_90a"); a compile error is raised with the compiler's own message.

    `shown` is what the error says of the options, where they are not all the user's; by default it lists them.
    """
    return _compile(source, name, arch, options, "CUBIN", shown)


def compile_ptx(source: str, name: str, arch: str, options: Sequence[str], shown: str | None = None) -> str:
    virtual = arch.replace("sm_", "compute_")
    return _compile(source, name, virtual, options, "PTX", shown).rstrip(b"\0").decode()


def _compile(source: str, name: str, arch: str, options: Sequence[str], kind: str, shown: str | None) -> bytes:
    nvrtc = _bindings()
    status, program = nvrtc.nvrtcCreateProgram(source.encode(errors="surrogateescape"), name.encode(), 0, [], [])
    _check(nvrtc, status)
    flags = [f"--gpu-architecture={arch}", "--std=c++17", f"--include-path={INCLUDE}", *options]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        if int(status):
            log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            for register, meaning in _MISTAKES.items():
                if register in log:
                    raise WarplensError(f"{name}: {meaning}")
            manner = " ".join(options) if shown is None else shown
            said = f"NVRTC could not compile it for {arch}" + (f" with {manner}" if manner else "")
            hint = "; arch= is like 'sm_90'" if "gpu-architecture" in log else ""
            raise WarplensError(f"{name}: {said}{hint}:\n{log}")
        return _bytes(nvrtc, program, getattr(nvrtc, f"nvrtcGet{kind}Size"), getattr(nvrtc, f"nvrtcGet{kind}"))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def cuda_includes() -> list[str]:
    """Return the options that name the folders of the CUDA headers; none if no toolkit is found."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return []
    found = find_nvidia_header_directory("cudart")
    if not found:
        return []
    # Since CUDA 13, the headers that <cooperative_groups.h> and <cuda/barrier> include are in a separate folder.
    folders = [Path(found), Path(found) / "cccl"]
    return [f"--include-path={folder}" for folder in folders if folder.is_dir()]


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
