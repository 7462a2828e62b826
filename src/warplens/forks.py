"""What a forked child undoes of what its parent had set up for itself."""

from __future__ import annotations

import os
from collections.abc import Callable

_actions: list[Callable[[], None]] = []


def in_forked_children(action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` once in every child that this process forks. Return a function that stops this."""
    _actions.append(action)
    return lambda: _actions.remove(action) if action in _actions else None


def _run() -> None:
    actions = _actions.copy()
    _actions.clear()  # the child's own children have nothing to undo
    for action in actions:
        action()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run)
