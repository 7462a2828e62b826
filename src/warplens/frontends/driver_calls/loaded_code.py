"""The PTX of code that was given to the driver: as text, in a fat binary, or known to the library that compiled it."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from warplens.driver.call_hooks import HandleOrigin
from warplens.errors import WarplensError
from warplens.frontends import nvrtc_sources
from warplens.frontends.assembled_ptx.ptx_store import digest
from warplens.frontends.driver_calls.fat_binary import best_ptx, machine_codes, ptx_entries
from warplens.frontends.driver_calls.image_source import ptx_of_image
from warplens.frontends.driver_calls.mapped_programs import find_mapped_ptx
from warplens.frontends.intercept.woven_module import Unavailable
from warplens.threads import assigned

LARGEST_PTX = 8 << 20
"""Bytes of PTX text beyond which marking a module would take minutes."""

_WITHOUT_PTX = re.compile(
    r"lib(cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor|nccl|npp|nvjpeg|nvjitlink|nvrtc|torch|c10)"
    r"[\w-]*\.so"
)


@dataclass(frozen=True)
class Recompiled:
    """A kernel whose compiler runs again for its PTX."""

    text: Callable[[], str]
    assemble: Callable[[str], bytes] | None = None
    """Makes machine code of the PTX, where that takes more than the driver knows."""


_compiled: dict[str, Recompiled] = {}
"""By digest of machine code, how to get the PTX that it was assembled from."""


_by_symbol: dict[str, Recompiled] = {}
"""How to get the PTX of kernels that were loaded before warplens could see it, if their symbols are unique."""


FindKernel = Callable[[str], Recompiled | None]
"""Finds a kernel by its symbol."""


class _ThreadLaunches(threading.local):
    find: FindKernel | None = None


_launching = _ThreadLaunches()
"""What the library that is about to launch a kernel in this thread knows of it."""
_hand_marks: set[str] = set()


class WithoutPtx(Unavailable):
    """There is only machine code. One line for all kernels of a library is enough."""


def remember_ptx(machine_code: bytes, text: Callable[[], str]) -> None:
    """Let a compiler's front end say how to get the PTX of what will be loaded as `machine_code`."""
    _compiled[digest(machine_code)] = Recompiled(text)


def remember_symbol(symbol: str, text: Callable[[], str]) -> None:
    """The same for a kernel that is loaded already, and whose symbol no other kernel has."""
    _by_symbol[symbol] = Recompiled(text)


def launching(find: FindKernel) -> AbstractContextManager[None]:
    """The same for the kernels that this thread launches meanwhile, whenever and from whatever they were loaded."""
    return assigned(_launching, find=find)


def expect_hand_marks(library: str) -> None:
    """Kernels that `library` launches may have marks of their own, which are recorded without automatic ones too."""
    _hand_marks.add(library)


def expects_hand_marks(library: str = "") -> bool:
    """Whether kernels that C++ launches, or those of one library, may have marks of their own."""
    return library in _hand_marks if library else bool(_hand_marks)


def compiled_again(origin: HandleOrigin | None, symbol: str, capability: str) -> Recompiled | None:
    """A kernel whose compiler must run again for its PTX; None where no compiler is known."""
    if _launching.find is not None and (found := _launching.find(symbol)) is not None:
        return found
    return _by_symbol.get(symbol) if origin is None else _remembered(origin.code(), capability)


def ptx_source(origin: HandleOrigin | None, symbol: str, capability: str) -> Callable[[], str]:
    """How to get the PTX of the module that a function is from. Raises Unavailable where it cannot be had, unless a
    compiler must run to know."""
    again = compiled_again(origin, symbol, capability)
    if again is not None:
        return lambda: _limited(again.text())
    text = _limited(_unseen(symbol, capability) if origin is None else _loaded(origin, symbol, capability))
    return lambda: text


def _limited(text: str) -> str:
    if len(text) > LARGEST_PTX:
        raise Unavailable(f"its module has {len(text) >> 20} MB of PTX, more than the {LARGEST_PTX >> 20} MB that fit")
    return text


def _unseen(symbol: str, capability: str) -> str:
    """The PTX of a kernel that was loaded before warplens could see it."""
    texts = find_mapped_ptx(symbol, capability)
    if len(texts) == 1:
        return texts[0]
    reason = "several libraries have a kernel of this name" if texts else "no library of this process has its PTX"
    raise WithoutPtx(
        f"it was loaded before warplens could see it, and {reason}; start the profile before CUDA is first used"
    )


def _loaded(origin: HandleOrigin, symbol: str, capability: str) -> str:
    image = origin.code()
    if (again := nvrtc_sources.text_of(image)) is not None:
        return again
    if b".version" in image.partition(b"\0")[0]:
        return image.partition(b"\0")[0].decode(errors="replace")
    try:
        # Reading all machine code of a library takes long if it has a gigabyte of it.
        find = best_ptx if is_known_without_ptx(home_of(origin)) else ptx_of_image
        text = find(image, capability)
    except (ValueError, WarplensError) as error:
        raise WithoutPtx(str(error)) from None
    if text is None:
        raise WithoutPtx(_why_no_ptx(image, capability, symbol))
    return text


def _remembered(image: bytes, capability: str) -> Recompiled | None:
    codes = [image, *machine_codes(image, capability)] if _compiled else ()
    return next((_compiled[name] for name in map(digest, codes) if name in _compiled), None)


def _why_no_ptx(image: bytes, capability: str, symbol: str) -> str:
    if others := sorted({entry.arch for entry in ptx_entries(image)}):
        names = ", ".join(f"compute_{arch}" for arch in others)
        return f"its PTX is for {names} and this GPU has compute capability {capability}"
    if symbol.startswith("kernel_cutlass_"):
        return "it was compiled before the profile began; compile it inside the profile"
    return (
        "there is only machine code; let `warplens nvcc --auto` compile it, or build it with PTX, as nvcc -arch=sm_90 "
        "does (not -arch=native), or with -lineinfo"
    )


def home_of(origin: HandleOrigin | None) -> str:
    """The file name of the program or library that code is compiled into; empty where it was made at run time."""
    if origin is None or not origin.image:
        return ""
    info = _Found()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(origin.image), ctypes.byref(info))
    return Path(info.file.decode(errors="replace")).name if found and info.file else ""


def is_known_without_ptx(home: str) -> bool:
    """Whether a library is known to have no PTX: `warplens run --list-kernels` names its kernels."""
    return _WITHOUT_PTX.match(home) is not None


class _Found(ctypes.Structure):
    """Dl_info."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)
    )  # fmt: skip
