"""Named ranges of the program (NVTX, torch.profiler.record_function), for `within=`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from warplens.frontends.import_hook import when_imported
from warplens.frontends.library_hooks import remover
from warplens.frontends.wrap import wrap
from warplens.session.window import names

_RANGES = {
    "torch.cuda.nvtx": (("", "range_push", "range_pop"),),
    "torch.autograd.profiler": (("record_function", "__enter__", "__exit__"),),
    "nvtx": (("", "push_range", "pop_range"), ("annotate", "__enter__", "__exit__")),
    "cupy.cuda.nvtx": (("", "RangePush", "RangePop"),),
}
"""By module: a class (none for functions of the module), and the calls that open and close a range."""


def watch_ranges() -> Callable[[], None]:
    """Follow the ranges of every thread from now on. Return a function that stops this."""
    undo: list[Callable[[], None]] = []

    def follow(module: str) -> None:
        for owner, opens, closes in _RANGES[module]:
            holder: Any = sys.modules[module]
            holder = getattr(holder, owner, None) if owner else holder
            if hasattr(holder, opens) and hasattr(holder, closes):
                undo.append(wrap(holder, opens, _open))
                undo.append(wrap(holder, closes, _close))

    undo.append(when_imported(dict.fromkeys(_RANGES, follow)))
    return remover(undo)


def _open(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The name is the first argument, or that of a range object: its `name`, or the message of its attributes."""
    known = named.get("message", arguments[0] if arguments else "")
    known = getattr(getattr(known, "attributes", known), "message", None) or getattr(known, "name", known)
    names().append(known.decode(errors="replace") if isinstance(known, bytes) else str(known))
    return original(*arguments, **named)


def _close(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if names():
        names().pop()
    return original(*arguments, **named)
