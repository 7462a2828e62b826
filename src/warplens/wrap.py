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

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, original)
