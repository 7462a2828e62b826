"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """Whether a condition has come true within so many seconds; returns as soon as it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return bool(condition())
