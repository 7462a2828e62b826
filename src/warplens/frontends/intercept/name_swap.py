"""Put something in the place of a library's function or class wherever a module has a name for it; find its objects."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any


def swap(original: Any, new: Any) -> Callable[[], None]:
    """`from library import launch` made names of its own: every module's name for `original` becomes `new`. Gives what
    undoes it, in modules that were imported since as well."""
    _rename(original, new)
    return lambda: _rename(new, original)


def by_position(original: Callable[..., Any], new: Callable[..., Any]) -> Callable[..., Any]:
    """`new` for calls by position. Keywords are the library's own names: a call with any goes to `original`."""

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        return original(*arguments, **named) if named else new(*arguments)

    return call


def _rename(old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        # Each profile looks through every module for a dozen objects: this test takes half the time of the search.
        if isinstance(names, dict) and any(map(operator.is_, list(names.values()), itertools.repeat(old))):
            for name in [name for name, value in list(names.items()) if value is old]:
                names[name] = new


def instances(kind: type) -> Iterator[Any]:
    """Every living object of a class."""
    # isinstance() would ask what a weak proxy stands for, and raise where that is gone: torch.compile leaves such.
    items = gc.get_objects()
    types = {one for one in set(map(type, items)) if issubclass(one, kind)}  # few types, a million objects
    return (item for item in items if type(item) in types) if types else iter(())
