"""Replace a function or method of a library, and put it back."""

from __future__ import annotations

import functools
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
