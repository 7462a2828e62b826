"""What every driver without a GPU has in common: contexts, streams, events, and memory of the interpreter."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from warplens.errors import WarplensError

_handles = itertools.count(1)
_thread = threading.local()


class Contexts:
    """`current` is the context of the GPU that calls go to; a test may move on to another. Work is done at once, so
    events are reached when they are marked. Memory is that of `space`, an interpreter's."""

    current = 1
    space: Any
    free_memory = 1 << 27

    def context(self) -> int:
        """The context of this thread: that of an `inside` it is in, else the one that is current for all."""
        return getattr(_thread, "context", None) or self.current

    def device_index(self) -> int:
        return self.context() - 1

    @contextmanager
    def inside(self, context: int) -> Iterator[None]:
        before, _thread.context = getattr(_thread, "context", None), context
        try:
            yield
        finally:
            _thread.context = before

    def memory(self) -> tuple[int, int]:
        return self.free_memory, self.free_memory

    def allocate(self, size: int) -> int:
        try:
            return int(self.space.alloc(size))
        except Exception as error:
            raise WarplensError(f"cuMemAlloc failed: {error}") from None

    def free(self, address: int) -> None:
        """The interpreter's memory is not given back."""

    def clear(self, address: int, size: int, stream: int) -> None:
        self.space.write(address, np.zeros(size, np.uint8))

    def clear_rows(self, address: int, pitch: int, width: int, rows: int, stream: int) -> None:
        for row in range(rows if width else 0):
            self.space.write(address + row * pitch, np.zeros(width, np.uint8))

    def copy_rows(
        self, host: int, out_pitch: int, address: int, pitch: int, width: int, rows: int, stream: int
    ) -> None:
        for row in range(rows):
            data = self.space.read(address + row * pitch, np.uint8, width).tobytes()
            ctypes.memmove(host + row * out_pitch, data, width)

    def pinned(self, size: int) -> int:
        if not hasattr(self, "_pinned"):
            self._pinned: list[Any] = []
        self._pinned.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self._pinned[-1])

    def free_pinned(self, address: int) -> None:
        self._pinned = [one for one in self._pinned if ctypes.addressof(one) != address]

    def stream(self) -> int:
        return next(_handles)

    def destroy_stream(self, stream: int) -> None: ...

    def new_event(self) -> int:
        return next(_handles)

    def destroy_event(self, event: int) -> None: ...

    def mark(self, event: int, stream: int) -> None: ...

    def reached(self, event: int) -> bool:
        return True

    def wait(self, event: int) -> None: ...

    def hold(self, stream: int, event: int) -> None: ...

    def event(self, stream: int) -> int:
        return self.new_event()

    def elapsed_ns(self, first: int, second: int) -> float:
        return 0.0

    def is_idle(self, stream: int) -> bool:
        return False

    def is_capturing(self, stream: int) -> bool:
        return False
