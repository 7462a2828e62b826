"""CUDA C++ marks that cannot be woven; their source is compiled with direct marks instead."""

from __future__ import annotations

from warplens.ptx.tree import parse
from warplens.weave.stores.launch_tracks import KERNEL, kernel_comments
from warplens.weave.weaver import marked_kernels


def why_direct(text: str) -> str:
    """The reason why the marks in a compiler's output cannot be woven; empty if they can."""
    if ".version" not in text:
        return "it is not compiled to PTX"
    if f"{KERNEL} direct" in text:
        return "a wl::Kernel selects a leader other than lane 0"
    module = parse(text)
    with_kernel = {entry.name for entry in module.entries if kernel_comments(entry)}
    if strays := set(marked_kernels(module)) - with_kernel:
        return f"{min(strays)} has marks but no wl::Kernel"
    return ""
