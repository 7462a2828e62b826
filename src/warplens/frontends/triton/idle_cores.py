"""How many assemblers may run at once."""

from __future__ import annotations

import os

MAX_PARALLEL = 4


def idle_cores() -> int:
    """Return how many cores have nothing to do, this thread's own included; at least 1 and at most MAX_PARALLEL."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        busy = os.getloadavg()[0]
    except OSError:
        busy = usable
    return max(1, min(MAX_PARALLEL, usable, round(usable + 1 - busy)))
