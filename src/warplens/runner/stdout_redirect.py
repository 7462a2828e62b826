"""Redirect the program's output to stderr while stdout is reserved for a JSON document."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def stdout_to_stderr(wanted: bool) -> Iterator[None]:
    """Redirect stdout to stderr for the block, including what C libraries and kernels print."""
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
        # Output of C code, such as a kernel's printf, is still in the C library's buffer.
        ctypes.CDLL(None).fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
