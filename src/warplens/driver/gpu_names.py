"""The GPUs of this machine by name."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int


def gpu_names() -> list[str] | None:
    """The GPUs of this machine, without making a context; None where there is no driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, name = c_int(0), ctypes.create_string_buffer(128)
    if library.cuInit(0) or library.cuDeviceGetCount(byref(count)):
        return []
    names = []
    for device in range(count.value):
        library.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
    return names
