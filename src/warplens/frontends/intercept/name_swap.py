"""Put something in the place of a library's function or class wherever a module has a name for it; find its objects."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def swap(original: Any, new: Any) -> Callable[[], None]:
    """`from library import launch` made names of its own: every module's name for `original` becomes `new`. Gives what
    undoes it, in modules that were imported since as well."""
    return swap_all([(original, new)])


def swap_all(pairs: Sequence[tuple[Any, Any]]) -> Callable[[], None]:
    """`swap` for pairs of an original and what takes its place, with one walk through the modules for all of them."""
    _rename(pairs)
    return lambda: _rename([(new, original) for original, new in pairs])


def by_position(original: Callable[..., Any], new: Callable[..., Any]) -> Callable[..., Any]:
    """`new` for calls by position. Keywords are the library's own names: a call with any goes to `original`."""

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        return original(*arguments, **named) if named else new(*arguments)

    return call


def _rename(pairs: Sequence[tuple[Any, Any]]) -> None:
    new_of = {id(old): new for old, new in pairs}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict) and not new_of.keys().isdisjoint(map(id, list(names.values()))):
            for name, value in list(names.items()):
                if id(value) in new_of:
                    names[name] = new_of[id(value)]


def instances(kind: type) -> Iterator[Any]:
    """Every living object of a class."""
    # isinstance() would ask what a weak proxy stands for, and raise where that is gone: torch.compile leaves such.
    items = gc.get_objects()
    types = {one for one in set(map(type, items)) if issubclass(one, kind)}  # few types, a million objects
    return (item for item in items if type(item) in types) if types else iter(())
