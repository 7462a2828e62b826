"""Stand in for a library's function or method for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Calls of `owner.name` become `wrapper(original, ...)`; gives what takes the wrapper away again."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return wrapper(original, *arguments, **options)

    def restore() -> None:
        # An attribute that was inherited must be so again: a base that changes later would not be seen.
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    own = name in vars(owner)
    setattr(owner, name, wrapped)
    return restore
