"""Assemble PTX by the driver's own compiler, the one that assembled the PTX that was loaded."""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError

_LINE_INFO, _INPUT_PTX = 13, 1
"""CU_JIT_GENERATE_LINE_INFO and CU_JIT_INPUT_PTX."""
_LINKED_ALIGNMENT = 16
"""The linker places dynamic shared memory behind the static one with this alignment, whatever the code declares."""
_CHANGED = re.compile(r"\bsetmaxnreg\b|^\s*(?:\.\w+\s+)*\.func\b", re.MULTILINE)
_DYNAMIC = re.compile(r"\.extern\s+\.shared\b[^;]*?\.align\s+(\d+)")


def keeps_its_meaning(ptx: str) -> bool:
    """Whether the linker makes the same of some PTX as a compiler that sees the whole program.

    The linker assembles relocatable code. There, `setmaxnreg` is ignored, functions are not inlined, and copies of
    tiles (TMA) to dynamic shared memory that is aligned for them fail, as it no longer is.
    """
    aligned = all(int(size) <= _LINKED_ALIGNMENT for size in _DYNAMIC.findall(ptx))
    return aligned and not _CHANGED.search(ptx)


def link_with_lines(lib: Driver, ptx: str) -> bytes:
    """The cubin of `ptx` for the current GPU, with a line table; raises a `WarplensError` if the driver refuses, or if
    its linker would change the code."""
    if not keeps_its_meaning(ptx):
        raise WarplensError("the driver's linker makes other code of it; load the PTX")
    text = ptx.encode().rstrip(b"\0") + b"\0"
    state, image, size, none = c_void_p(), c_void_p(), c_size_t(), c_void_p()
    options, values = (c_int * 1)(_LINE_INFO), (c_void_p * 1)(1)
    lib._call("cuLinkCreate_v2", c_uint(1), options, values, byref(state))
    try:
        given = (c_size_t(len(text)), c_char_p(b"kernel.ptx"), c_uint(0), none, none)
        lib._call("cuLinkAddData_v2", state, c_int(_INPUT_PTX), c_char_p(text), *given)
        lib._call("cuLinkComplete", state, byref(image), byref(size))
        return ctypes.string_at(image, size.value)
    finally:
        lib._call("cuLinkDestroy", state)
