"""What Triton made of the plain kernel: its IR and PTX, and its machine code, which says what the kernel takes. Nothing
of this need be made again for the woven twin."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from warplens.weave.fit.ptxas_output import read_cubin
from warplens.weave.fit.resources import Resources

_thread = threading.local()


@contextmanager
def known(cubin: bytes | None, stages: Mapping[str, str] | None = None) -> Iterator[None]:
    """Say which machine code the plain kernel has that this thread compiles a woven twin of, and which texts the stages
    before it left (ttir, ttgir, ptx)."""
    before = getattr(_thread, "cubin", None), getattr(_thread, "stages", {})
    _thread.cubin, _thread.stages = cubin, stages or {}
    try:
        yield
    finally:
        _thread.cubin, _thread.stages = before


def find_text(stage: str) -> str:
    """Return the text that a stage left of the kernel that this thread compiles, without marks of ours; empty if it is
    not known."""
    return str(getattr(_thread, "stages", {}).get(stage, ""))


def find_resources() -> Resources | None:
    """Return what the kernel that this thread compiles takes without marks, if its plain machine code is known and it
    spills nothing."""
    cubin = getattr(_thread, "cubin", None)
    return read_cubin(cubin) if cubin else None
