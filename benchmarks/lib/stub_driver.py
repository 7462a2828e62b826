"""Libraries that launch on a driver that runs nothing, so that what they compile and launch can be carried elsewhere.

The driver is `fake_libcuda.c` of tests/support/cpp_launches, which LD_LIBRARY_PATH must have as libcuda.so.1 before
Python starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LOADS = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p)
_RUNS = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int
)


@dataclass(frozen=True)
class SeenLaunch:
    """A launch as the driver saw it, with the bytes of each argument."""

    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[bytes, ...]


class StubDriver:
    """Notes launches. `sizes_of` gives the bytes of each parameter of a kernel."""

    def __init__(self, sizes_of: Callable[[str], list[int]] = lambda symbol: []) -> None:
        self.launches: list[SeenLaunch] = []
        self._symbols = ["no kernel"]
        self._sizes_of = sizes_of
        self._calls = _RUNS(self._run), _LOADS(self._load)  # kept for as long as the driver calls them
        ctypes.CDLL("libcuda.so.1").fake_connect(*self._calls)

    def _load(self, image: int | None, home: int, name: bytes | None) -> int:
        self._symbols.append((name or b"").decode())
        return len(self._symbols) - 1

    def _run(self, function: int, sizes: Any, stream: int, given: int, packed: int) -> int:
        symbol = self._symbols[function]
        lengths = self._sizes_of(symbol)
        places = (ctypes.c_void_p * len(lengths)).from_address(given)
        raw = tuple(ctypes.string_at(at, length) for at, length in zip(places, lengths, strict=True))
        self.launches.append(SeenLaunch(symbol, tuple(sizes[0:3]), tuple(sizes[3:6]), sizes[6], raw))
        return 0
