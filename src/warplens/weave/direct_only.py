"""Marks of CUDA C++ that cannot be woven: their source is compiled with marks that the compiler sees."""

from __future__ import annotations

from warplens.ptx.symbols import plain_name
from warplens.ptx.tree import PtxModule
from warplens.weave.stores.launch_tracks import KERNEL, kernel_comments
from warplens.weave.weaver import marked_kernels


def why_direct(module: PtxModule) -> str:
    """Return why the marks in a module cannot be woven; empty if they can."""
    if f"{KERNEL} direct" in module.text():
        return "a wl::Kernel selects a leader other than lane 0"
    known = {entry.name for entry in module.entries if kernel_comments(entry)}
    if strays := set(marked_kernels(module)) - known:
        kernel = plain_name(min(strays))
        return f"{kernel} has marks but no wl::Kernel: begin it with `wl::Kernel k(prof);` (prof: its last parameter)"
    return ""
