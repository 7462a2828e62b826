"""A way to the host beside the usual one, for copies while a kernel runs that may never end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from warplens.driver.libcuda import Driver
from warplens.launch.side_copy import RowCopy, Rows, SideCopy

STAGING_BYTES = 4 << 20


class RunningCopy:
    """A stream, an event and pinned memory of one context.

    All are made before the first launch: while a kernel hangs, the driver may not come back from making them. Only one
    thread may use it at a time, beside those that bring finished launches home.
    """

    def __init__(self, lib: Driver, context: int) -> None:
        self._lib, self._context, self._stream = lib, context, lib.stream()
        self._copy = SideCopy(lib, self._stream, STAGING_BYTES)
        self._copy.prepare()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Copies are made inside this, in any thread, also while the program captures a graph."""
        with self._lib.relaxed(), self._lib.inside(self._context):
            yield

    def rows(self, copy: RowCopy) -> Rows:
        """The bytes of the rows as they are now."""
        (rows,) = self._copy.all_rows([copy])
        return rows

    def release(self) -> None:
        """Give the pinned memory and the stream back."""
        self._copy.release()
        self._lib.destroy_stream(self._stream)
