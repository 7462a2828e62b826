"""Python's lock in short turns, while a thread of warplens works beside the program."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TURN_S = 2e-5
"""How long a thread keeps Python's lock while another waits for it; Python's own default is 5 ms."""

_lock = threading.Lock()
_blocks = 0
_before = _set = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """Inside the block, a thread that wants to launch a kernel waits for Python's lock for TURN_S or little more."""
    global _blocks, _before, _set
    with _lock:
        _blocks += 1
        if _blocks == 1:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN_S, _before))
            _set = sys.getswitchinterval()
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and sys.getswitchinterval() == _set:  # else the program has chosen it meanwhile
                sys.setswitchinterval(_before)
