"""Which launches of a kernel are recorded: the options `kernels`, `every` and `launches`."""

from __future__ import annotations

import threading

from warplens.options import Options


class Quota:
    """Counts launches by kernel; safe to use from several threads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._launches: dict[str, int] = {}
        self._lock = threading.Lock()

    def wants(self, kernel: str) -> bool:
        """Count the next launch of `kernel`, and return whether to record it."""
        if not self._options.wants_kernel(kernel):
            return False
        with self._lock:
            number = self._launches.get(kernel, 0)
            self._launches[kernel] = number + 1
        recorded, skipped = divmod(number, self._options.every)
        return skipped == 0 and (self._options.launches is None or recorded < self._options.launches)

    def finished(self, kernel: str) -> bool:
        """Return whether as many launches of `kernel` were recorded as the options allow."""
        limit = self._options.launches
        return limit is not None and self._launches.get(kernel, 0) > (limit - 1) * self._options.every
