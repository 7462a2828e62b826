"""Kernel arguments as the bytes the driver wants, with the sizes the kernel itself declares."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warplens.errors import UsageError
from warplens.record.capture import Dim3

_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {4: "f", 8: "d"}


@dataclass(frozen=True)
class Shape:
    """How a kernel is launched."""

    grid: Dim3
    block: Dim3
    shared: int = 0
    stream: int = 0


def pack(kernel: str, arguments: Sequence[Any], sizes: Sequence[int]) -> list[bytes]:
    """One bytes object per parameter; says which argument is wrong and what the parameter takes."""
    if len(arguments) != len(sizes):
        raise UsageError(
            f"kernel {kernel!r} takes {len(sizes) - 1} arguments before its wl::Buffer, {len(arguments) - 1} were given"
        )
    return [_pack(kernel, number, *pair) for number, pair in enumerate(zip(arguments, sizes, strict=True))]


def _pack(kernel: str, number: int, value: Any, size: int) -> bytes:
    if getattr(value, "is_cuda", None) is False and not value.is_pinned():
        raise UsageError(
            f"kernel {kernel!r}, argument {number}: the tensor is in the host's memory, which no kernel can read; pass "
            "its .cuda()"
        )
    data = _bytes(value, size)
    if data is None or len(data) != size:
        raise UsageError(
            f"kernel {kernel!r}, argument {number}: {value!r} does not fit a parameter of {size} bytes; pass an int, a "
            "float, a numpy scalar, a ctypes value or a device array of that size"
        )
    return data


def _bytes(value: Any, size: int) -> bytes | None:
    address = _address(value)
    if address is not None:
        return struct.pack("<Q", address)
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tobytes()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, (ctypes.Structure, ctypes._SimpleCData)):
        return bytes(value)
    if isinstance(value, (bool, int)) and size in _INTEGERS:
        bits = 8 * size
        if not -(1 << bits - 1) <= value < 1 << bits:
            return None
        return int(value).to_bytes(size, "little", signed=value < 0)
    if isinstance(value, float) and size in _FLOATS:
        return struct.pack("<" + _FLOATS[size], value)
    return None


def _address(value: Any) -> int | None:
    """The device address of a torch tensor, a CuPy array or anything else that says it holds one."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    interface = getattr(value, "__cuda_array_interface__", None)
    return int(interface["data"][0]) if interface is not None else None


def dim3(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    """A grid or block as three sizes."""
    sizes = [int(value)] if isinstance(value, (int, np.integer)) else [int(size) for size in value]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise UsageError(f"{what} {value!r}: give one to three sizes of at least 1")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream given as an int, a torch or CuPy stream, or by the __cuda_stream__ protocol."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise UsageError(f"stream {stream!r}: give an int, a torch or CuPy stream, or an object with __cuda_stream__")
