"""What the plain kernel takes: known from its machine code, so it need not be assembled again to compare with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from warplens.weave.fit.ptxas_output import read_cubin
from warplens.weave.fit.resources import Resources

_thread = threading.local()


@contextmanager
def known(cubin: bytes | None, ptx: str = "") -> Iterator[None]:
    """Say which machine code and PTX the plain kernel has that this thread compiles a woven twin of."""
    before = getattr(_thread, "cubin", None), getattr(_thread, "ptx", "")
    _thread.cubin, _thread.ptx = cubin, ptx
    try:
        yield
    finally:
        _thread.cubin, _thread.ptx = before


def find_ptx() -> str:
    """Return the PTX of the kernel that this thread compiles without marks; empty if it is not known."""
    return str(getattr(_thread, "ptx", ""))


def find_resources() -> Resources | None:
    """Return what the kernel that this thread compiles takes without marks, if its plain machine code is known and it
    spills nothing."""
    cubin = getattr(_thread, "cubin", None)
    return read_cubin(cubin) if cubin else None
