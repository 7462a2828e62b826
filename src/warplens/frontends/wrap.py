"""Replace a function or method of a library, and put it back."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Let calls of `owner.name` run `wrapper(original, ...)`. Return a function that removes the wrapper."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return wrapper(original, *arguments, **options)

    def restore() -> None:
        # Delete an attribute that was inherited, so that later changes of the base class take effect again.
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    own = name in vars(owner)
    setattr(owner, name, wrapped)
    return restore


def wrap_compiled(owner: type, name: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """As `wrap`, for a class of a compiled module, whose attributes Python refuses to set."""
    original = owner.__dict__[name]

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return wrapper(original, *arguments, **options)

    # What `__dict__` shows read-only is a dictionary like any other. Python keeps what it looked up in a class until it
    # is told that the class has changed.
    (content,) = gc.get_referents(owner.__dict__)

    def put(method: Any) -> None:
        content[name] = method
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

    put(wrapped)
    return lambda: put(original)
