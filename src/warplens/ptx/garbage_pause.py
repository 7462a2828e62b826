"""Hold Python's garbage collector while large trees are built: it would look at every node of them again and again.

The trees have no cycles, so nothing waits to be collected. Without the pause, the time of weaving grows faster than the
code it weaves.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_was_on = False


@contextmanager
def garbage_pause() -> Iterator[None]:
    """No automatic collection inside the block. Blocks may nest, also in several threads; the last to end resumes."""
    global _inside, _was_on
    with _lock:
        if not _inside:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _was_on:
                gc.enable()
