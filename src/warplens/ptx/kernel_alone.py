"""One kernel of a module without the others: modules of template libraries hold hundreds, and each costs time to weave
and to assemble."""

from __future__ import annotations

import re

from warplens.ptx.operands import names
from warplens.ptx.tree import Comment, Function, PtxModule, Scope

_DEBUG_INFO = re.compile(r"^\s*\.section\s+\.debug_(?:info|loc|frame)\b", re.M)
"""Sections with the labels of functions, as `nvcc -G` makes them."""


def kernel_alone(module: PtxModule, kernel: str) -> PtxModule:
    """The module with `kernel`, everything that it may mention, and everything that is no function.

    A module with debug information stays whole, because that refers to all functions.
    """
    others = "\n".join(item.raw for item in module.items if not isinstance(item, (Function, Comment)))
    if _DEBUG_INFO.search(others):
        return module
    mentions: dict[str, set[str]] = {}
    for one in module.functions:
        texts = [node.raw for node in one.walk() if not isinstance(node, (Comment, Scope))]
        mentions.setdefault(one.name, set()).update(names("\n".join(texts)))
    kept, work = set(), [kernel, *names(others).intersection(mentions)]
    while work:
        name = work.pop()
        if name not in kept:
            kept.add(name)
            work += mentions[name].intersection(mentions)
    items = [item for item in module.items if not isinstance(item, Function) or item.name in kept]
    return PtxModule(module.version, module.target, module.address_size, items, module.tail)
