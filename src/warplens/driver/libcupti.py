"""Find and call libcupti, NVIDIA's library for profilers: the copy that the program has loaded, or else one nearby."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_uint32
from pathlib import Path
from typing import Any

from warplens.errors import WarplensError
from warplens.files import in_package

_HINT = (
    "it comes with PyTorch's wheels, the CUDA toolkit (extras/CUPTI) and `pip install nvidia-cuda-cupti`; "
    "WARPLENS_CUPTI names another copy"
)
_NAME = "libcupti.so"
_MAPS = Path("/proc/self/maps")
_PACKAGES = (("nvidia.cu13", "lib"), ("nvidia.cuda_cupti", "lib"))
"""Packages that PyTorch brings its copy in, and the folder."""
_TRITON = ("triton", "backends/nvidia/lib/cupti")
_TOOLKIT = ("extras/CUPTI/lib64", "lib64")
_NO_PERMISSION, _NOT_SUPPORTED, _BUSY = (35, 40), (27, 33, 38, 41, 42, 43, 44, 45), (7, 12, 23, 26, 36, 39)


class CuptiError(WarplensError):
    """What CUPTI refused, with its number."""

    def __init__(self, call: str, status: int, text: str) -> None:
        remedy = _remedy(status)
        super().__init__(f"{call} failed: {text} (CUPTI error {status}){remedy and f'; {remedy}'}")
        self.status = status


def _remedy(status: int) -> str:
    if status in _NO_PERMISSION:
        return (
            "the driver lets only administrators sample (ERR_NVGPUCTRPERM): run as root, or let an administrator load "
            "the driver with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if status in _NOT_SUPPORTED:
        return "this GPU, driver or virtual machine does not support it"
    if status in _BUSY:
        return "another context or profiler (Proton, ncu) may be using the GPU's sampling unit"
    return ""


class Cupti:
    """The library of this process."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._lib = ctypes.CDLL(path)
            version = c_uint32()
            self._lib.cuptiGetVersion(byref(version))
        except (OSError, AttributeError) as error:
            raise WarplensError(f"libcupti cannot be used: {error}") from None
        self.version = int(version.value)
        """Its interface: 22 is that of CUDA 12.4."""

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; an error raises a `CuptiError`."""
        try:
            function = getattr(self._lib, name)
        except AttributeError:
            raise WarplensError(f"{self.path} has no {name}: it is too old") from None
        status = int(function(*arguments))
        if status:
            raise CuptiError(name, status, self._text(status))

    def _text(self, status: int) -> str:
        text = c_char_p()
        self._lib.cuptiGetResultString(c_int(status), byref(text))
        return text.value.decode(errors="replace") if text.value else "unknown error"


@functools.cache
def cupti() -> Cupti:
    """The library, loaded; raises a `WarplensError` that says how to get it."""
    found = find_cupti()
    if found is None:
        raise WarplensError(f"libcupti was not found: {_HINT}")
    return Cupti(found)


def find_cupti() -> str | None:
    """The path of the library to use. Two copies in one process would compete for the GPU, so a loaded one is used."""
    given = os.environ.get("WARPLENS_CUPTI")
    if given is not None:
        return given if os.path.isfile(given) else None
    copies = (path for folder in _folders() for path in sorted(folder.glob(f"{_NAME}*")) if path.is_file())
    return next(_loaded(), None) or next(map(str, copies), None)


def _loaded() -> Iterator[str]:
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        path = line.partition("/")[2]
        if path and os.path.basename(path).startswith(_NAME):
            yield f"/{path}"


def _folders() -> Iterator[Path]:
    for package, folder in _PACKAGES:
        yield from in_package(package, folder)
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    yield from (Path(root) / folder for root in roots if root for folder in _TOOLKIT)
    yield from in_package(*_TRITON)
