"""Assemble PTX by the driver's own compiler, the one that assembled the PTX that was loaded."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

from warplens.driver.libcuda import Driver

_LINE_INFO, _INPUT_PTX = 13, 1
"""CU_JIT_GENERATE_LINE_INFO and CU_JIT_INPUT_PTX."""


def link_with_lines(lib: Driver, ptx: str) -> bytes:
    """The cubin of `ptx` for the current GPU, with a line table; raises a `WarplensError` if the driver refuses."""
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
