"""Processor time of a function, which other programs on the machine hardly change."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_processor_time(work: Callable[[], object], repeats: int) -> float:
    """The least seconds of user and system time of several runs, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)
