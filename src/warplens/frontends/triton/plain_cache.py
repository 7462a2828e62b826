"""What Triton made of the plain kernel: its IR and PTX, and its machine code, which says what the kernel takes. Nothing
of this need be made again for the woven twin."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from warplens.weave.fit.ptxas_output import read_cubin
from warplens.weave.fit.resources import Resources

_thread = threading.local()


@contextmanager
def known(
    cubin: bytes | None, stages: Mapping[str, str] | None = None, metadata: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Say which machine code the plain kernel has that this thread compiles a woven twin of, which texts the stages
    before it left (ttir, ttgir, llir, ptx), and its metadata."""
    before = getattr(_thread, "cubin", None), getattr(_thread, "stages", {}), getattr(_thread, "metadata", {})
    _thread.cubin, _thread.stages, _thread.metadata = cubin, stages or {}, metadata or {}
    try:
        yield
    finally:
        _thread.cubin, _thread.stages, _thread.metadata = before


def find_text(stage: str) -> str:
    """Return the text that a stage left of the kernel that this thread compiles, without marks of ours; empty if it is
    not known."""
    return str(getattr(_thread, "stages", {}).get(stage, ""))


def find_lowered(ttgir: str, metadata: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]] | None:
    """Return the LLVM IR and PTX that Triton has made of this TTGIR, and `metadata` with what it noted meanwhile; None
    if they are not known."""
    llir, ptx = find_text("llir"), find_text("ptx")
    if ttgir != find_text("ttgir") or not llir or not ptx:
        return None
    # Of a kernel whose warps are specialised, only these stages know how many there are.
    return llir, ptx, {**_thread.metadata, **metadata, "num_warps": _thread.metadata["num_warps"]}


def find_resources() -> Resources | None:
    """Return what the kernel that this thread compiles takes without marks, if its plain machine code is known and it
    spills nothing."""
    cubin = getattr(_thread, "cubin", None)
    return read_cubin(cubin) if cubin else None
