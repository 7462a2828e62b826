"""Where the program's output goes when stdout is for one JSON document."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def stdout_to_stderr(wanted: bool) -> Iterator[None]:
    """Send stdout to stderr for the block, what libraries and kernels print included."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        # What C code printed, a kernel's printf for one, waits in C's own buffer.
        ctypes.CDLL(None).fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
