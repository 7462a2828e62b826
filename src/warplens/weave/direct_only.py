"""Marks of CUDA C++ that the weaver cannot do: their source is compiled with marks that the compiler sees."""

from __future__ import annotations

from warplens.ptx.tree import parse
from warplens.weave.stores.launch_tracks import KERNEL, kernel_comments
from warplens.weave.weaver import marked_kernels


def why_direct(text: str) -> str:
    """Why the marks in what the compiler wrote cannot be woven; empty where they can."""
    if ".version" not in text:
        return "it is not compiled to PTX"
    if f"{KERNEL} direct" in text:
        return "a wl::Kernel names another leader than lane 0"
    module = parse(text)
    known = {entry.name for entry in module.entries if kernel_comments(entry)}
    if strays := set(marked_kernels(module)) - known:
        return f"{min(strays)} has marks and no wl::Kernel"
    return ""
