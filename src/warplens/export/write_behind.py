"""Write a file in a thread, so that the next text is made while the system copies the last one."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol


class _Writable(Protocol):
    def write(self, data: bytes | memoryview, /) -> int: ...


class WriteBehind:
    """Writes to a file, one text behind.

    A text must not change until the next one was written. An error shows at the next call, or at the end.
    """

    def __init__(self, file: _Writable) -> None:
        self._file, self._pool = file, ThreadPoolExecutor(1)
        self._last: Future[int] | None = None

    def __enter__(self) -> WriteBehind:
        return self

    def write(self, data: bytes | memoryview) -> None:
        self._wait()
        self._last = self._pool.submit(self._file.write, data)

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._wait()
        finally:
            self._pool.shutdown()
