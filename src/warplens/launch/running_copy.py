"""A way to the host beside the usual one, for copies while a kernel runs that may never end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from warplens.driver.libcuda import Driver
from warplens.launch.side_copy import RowCopy, Rows, SideCopy

STAGING_BYTES = 4 << 20


class RunningCopy:
    """A stream, an event and pinned memory of one context.

    All are made before the first launch: while a kernel hangs, the driver may not come back from making them. Threads
    take turns; those that bring finished launches home go on meanwhile.
    """

    def __init__(self, lib: Driver, context: int) -> None:
        self._lib, self._context, self._stream = lib, context, lib.stream()
        self._copy = SideCopy(lib, self._stream, STAGING_BYTES)
        self._copy.prepare()
        self._turn = threading.Lock()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Copies are made inside this, in any thread, also while the program captures a graph."""
        with self._turn, self._lib.relaxed(), self._lib.inside(self._context):
            yield

    def rows(self, copy: RowCopy) -> Rows:
        """The bytes of the rows as they are now."""
        (rows,) = self._copy.all_rows([copy])
        return rows

    def all_rows(self, copies: Sequence[RowCopy]) -> list[Rows]:
        """The same for several copies, for which the host waits together."""
        return self._copy.all_rows(copies)

    def release(self) -> None:
        """Give the pinned memory and the stream back, after the last copy."""
        with self._turn:
            self._copy.release()
            self._lib.destroy_stream(self._stream)
