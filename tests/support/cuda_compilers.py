"""The CUDA compilers that this machine has, and what their cubins hold."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import site
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import SHIM
from warplens.errors import WarplensError
from warplens.frontends.cuda.nvrtc import compile_cubin
from warplens.record.c_header import PATH
from warplens.record.name_table import scan

KERNELS = (SHIM / "kernels.cu").read_text()
OFF, ON, RING = ("-DWARPLENS=0",), ("-DWARPLENS=1",), ("-DWARPLENS_RING=1",)


def _find_nvrtc() -> bool:
    if importlib.util.find_spec("cuda") is None:
        return False
    try:
        compile_cubin("__global__ void k() {}", "probe.cu", "sm_90", ())
    except (WarplensError, RuntimeError):
        return False
    return True


def _find_nvdisasm() -> str | None:
    triton = importlib.util.find_spec("triton")
    shipped = Path(triton.origin).parent / "backends/nvidia/bin/nvdisasm" if triton and triton.origin else None
    return str(shipped) if shipped and shipped.exists() else shutil.which("nvdisasm")


NVDISASM = _find_nvdisasm()


needs_nvrtc = pytest.mark.skipif(not _find_nvrtc(), reason="needs cuda-bindings and nvidia-cuda-nvrtc")


needs_sass = pytest.mark.skipif(NVDISASM is None, reason="needs nvdisasm (the triton wheel ships one)")


@functools.lru_cache(maxsize=2)  # tests compare the kernels of two cubins one by one
def _disassembled(cubin: bytes, folder: Path) -> str:
    path = folder / "k.cubin"
    path.write_bytes(cubin)
    return subprocess.run([str(NVDISASM), "-c", path], capture_output=True, text=True, check=True).stdout


def sass(cubin: bytes, folder: Path, kernel: str = "") -> list[str]:
    """The instructions of one kernel, without their addresses."""
    text = _disassembled(cubin, folder)
    body = next(part for part in text.split(".section\t.text.")[1:] if kernel in part.split(",")[0])
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", body)


def usage(cubin: bytes, folder: Path) -> dict[str, int]:
    """Registers, stack and local memory of a cubin's one kernel."""
    path = folder / "k.cubin"
    path.write_bytes(cubin)
    tool = Path(str(NVDISASM)).with_name("cuobjdump")
    text = subprocess.run([str(tool), "-res-usage", path], capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}


def names_sent(cubin: bytes) -> dict[int, str]:
    """The names that a kernel sends: those in its module's constants up to the last `names_end_`."""
    (sections,) = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, sections + 64 * i) for i in range(count)]

    def text(table: int, at: int) -> str:
        start = headers[table][4] + at
        return cubin[start : cubin.index(b"\0", start)].decode()

    data = next(number for number, header in enumerate(headers) if text(names, header[0]) == ".nv.constant3")
    _, _, _, _, offset, size, strings, *_ = next(header for header in headers if header[1] == 2)
    symbols = [struct.unpack_from("<IBBHQQ", cubin, at) for at in range(offset, offset + size, 24)]
    ends = [entry[4] for entry in symbols if entry[3] == data and "names_end_" in text(strings, entry[0])]
    start = headers[data][4]
    return dict(scan(cubin[start : start + max(ends)]).regions)


def nvrtc_libraries() -> dict[str, Path]:
    """Every NVRTC that pip installed: CUDA 12 and 13 can be there side by side."""
    folders = [Path(folder) for folder in site.getsitepackages() if Path(folder, "nvidia").is_dir()]
    return {path.name: path for folder in folders for path in folder.glob("nvidia/*/lib/libnvrtc.so.1[23]")}


def compile_with_nvrtc(
    library: Path, arch: str, options: Sequence[str], source: str = KERNELS, kind: str = "CUBIN"
) -> tuple[str, bytes]:
    """What NVRTC says of the source (nothing, when all is well) and what it makes of it."""
    nvrtc = ctypes.CDLL(str(library))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    flags = [f"--gpu-architecture={arch}", "--std=c++17", f"-I{PATH.parent}", *options]
    status = nvrtc.nvrtcCompileProgram(
        program, len(flags), (ctypes.c_char_p * len(flags))(*(f.encode() for f in flags))
    )
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    made = ctypes.create_string_buffer(0)
    if not status:
        getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{kind}")(program, made)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return (f"error {status}: " if status else "") + log.value.decode(), made.raw


def nvcc_compilers() -> list[str]:
    """The nvcc that is found, and those that WARPLENS_NVCC names, to try the header with several CUDA releases."""
    named = os.environ.get("WARPLENS_NVCC", "").split(os.pathsep)
    return [nvcc for nvcc in (shutil.which("nvcc"), *named) if nvcc]
