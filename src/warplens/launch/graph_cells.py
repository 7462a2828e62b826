"""Cells: 8 bytes of device memory each, which hold the buffer pointer of one kernel in a CUDA graph.

A graph may be replayed as long as the process lives, so cells are never freed or given to another graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from warplens.driver.libcuda import Driver

CELL_BYTES = 8
BLOCK_CELLS = 256
"""Cells that lie side by side and belong to one graph, so that one copy writes all of them."""
SLAB_BYTES = 64 << 10


@dataclass
class Cells:
    """The cells of one context."""

    lib: Driver
    _next: int = 0
    _end: int = 0

    def block(self) -> int:
        """The address of BLOCK_CELLS cells that hold 0."""
        size = BLOCK_CELLS * CELL_BYTES
        if self._next + size > self._end:
            self._next = self._zeroed_slab()
            self._end = self._next + SLAB_BYTES
        address, self._next = self._next, self._next + size
        return address

    def _zeroed_slab(self) -> int:
        lib = self.lib
        address = lib.allocate(SLAB_BYTES)
        stream, event = lib.stream(), lib.new_event()
        lib.clear(address, SLAB_BYTES, stream)
        lib.mark(event, stream)
        lib.wait(event)
        lib.destroy_event(event)
        lib.destroy_stream(stream)
        return address
