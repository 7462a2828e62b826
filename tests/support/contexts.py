"""The part of a driver without a GPU that knows which context is current."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Contexts:
    """`current` is the context of the GPU that calls go to; a test may move on to another."""

    current = 1

    def context(self) -> int:
        return self.current

    def device_index(self) -> int:
        return self.current - 1

    @contextmanager
    def inside(self, context: int) -> Iterator[None]:
        before, self.current = self.current, context
        try:
            yield
        finally:
            self.current = before
