"""Run the work of a dataset's parts in this process, a few parts at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from warplens.engines.part_work import PartTask, PartWork

_MOST_THREADS = 8
"""Each thread has rows of one part in memory, so this bounds the memory."""


class LocalEngine:
    """Threads of this process; Parquet and numpy let them run side by side."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or min(os.cpu_count() or 1, _MOST_THREADS)

    def tables(self, work: PartWork, tasks: Sequence[PartTask]) -> Iterator[pa.Table]:
        with ThreadPoolExecutor(self._threads) as pool:
            running: deque[Future[pa.Table]] = deque()
            for task in tasks:
                running.append(pool.submit(work, task))
                if len(running) > self._threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
