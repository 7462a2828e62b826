"""Replace functions or methods of a library, and put them back."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable
from typing import Any

from warplens.frontends.library_hooks import Undo, remover

_INHERITED = object()


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Let calls of `owner.name` run `wrapper(original, ...)`. Return a function that removes the wrapper."""
    original, own = getattr(owner, name), vars(owner).get(name, _INHERITED)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return wrapper(original, *arguments, **options)

    _put(owner, name, wrapped)
    return lambda: _put(owner, name, own)


def wrap_all(*wrappers: tuple[Any, str, Callable[..., Any]]) -> Undo:
    """`wrap` each, or none if a library lacks one of the names."""
    undo: Undo = []
    try:
        for one in wrappers:
            undo.append(wrap(*one))
    except AttributeError:
        remover(undo)()
        raise
    return undo


def _put(owner: Any, name: str, value: Any) -> None:
    try:
        if value is _INHERITED:
            # Deleted, so that later changes of the base class take effect again.
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    except TypeError:
        # Python refuses to set the attributes of a compiled module's class. But what its `__dict__` shows read-only is
        # a dictionary like any other. Python keeps what it looked up in a class until it is told that it has changed.
        if not isinstance(owner, type):
            raise
        (content,) = gc.get_referents(owner.__dict__)
        if value is _INHERITED:
            del content[name]
        else:
            content[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
