"""Proton's host scopes. A scope names what the program does; its kernels are shown below it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from types import FrameType
from typing import Any

_open = threading.local()

PYTHON_FRAMES = 32
"""Frames of the Python stack that `context="python"` keeps at most."""


def names() -> tuple[str, ...]:
    """The scopes that this thread is in, outermost first."""
    return tuple(name for name, _ in _stack())


def python_frames() -> tuple[str, ...]:
    """The program's own frames of this thread, outermost first, as `context="python"` shows them."""
    frame: FrameType | None = sys._getframe(1)
    found: list[str] = []
    while frame is not None and len(found) < PYTHON_FRAMES:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("triton", "warplens"):
            code = frame.f_code
            found.append(f"{code.co_filename}:{code.co_name}@{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(found))


class scope(ContextDecorator):
    """`with proton.scope("name", {"metric": value}):`, also a decorator."""

    def __init__(self, name: str, metrics: dict[str, float] | None = None) -> None:
        self.name, self.metrics = name, metrics

    def __enter__(self) -> scope:
        enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(self, *_: object) -> None:
        exit_scope(self.name)


class cpu_timed_scope(scope):
    """A scope whose time on the host Proton's own sessions record as well."""

    def __init__(self, name: str, metrics: dict[str, float] | None = None) -> None:
        super().__init__(name, metrics)
        if metrics and "cpu_time" in metrics:
            raise ValueError("The metric name 'cpu_time' is reserved.")

    def __enter__(self) -> scope:
        _enter(self.name, lambda proton: proton.cpu_timed_scope(self.name, self.metrics))
        return self


def enter_scope(name: str, *, metrics: dict[str, float] | None = None) -> None:
    """Enter a scope that `exit_scope` leaves."""
    _enter(name, lambda proton: proton.scope(name, metrics))


def exit_scope(name: str | None = None, *, metrics: dict[str, float] | None = None) -> None:
    """Leave the innermost scope of this thread."""
    if not _stack():
        return
    if name and name != _stack()[-1][0]:
        raise ValueError(f"Scope name mismatch: {name} != {_stack()[-1][0]}")
    _, forwarded = _stack().pop()
    if forwarded is not None:
        forwarded.__exit__(None, None, None)


class state(scope):
    """Proton's states name what a scope is busy with; here they are scopes."""


forward_to: list[Any] = []
"""Proton itself, once per running session of another backend."""


def _stack() -> list[tuple[str, Any]]:
    if not hasattr(_open, "scopes"):
        _open.scopes = []
    found: list[tuple[str, Any]] = _open.scopes
    return found


def _enter(name: str, made_by: Callable[[Any], Any]) -> None:
    forwarded = made_by(forward_to[-1]) if forward_to else None
    if forwarded is not None:
        forwarded.__enter__()
    _stack().append((name, forwarded))
