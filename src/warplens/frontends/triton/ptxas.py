"""Capture the log of ptxas: Triton runs it with `-v` and discards what it prints."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from warplens.frontends.triton.requirement import set_knob

_local = threading.local()
_lock = threading.Lock()
_captures = 0
_undo: list[Callable[[], None]] = []
_print_log = False
"""Whether the user asked Triton to print ptxas's log."""


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """Collect what Triton's backend prints in this thread: ptxas's log, and Triton's report if ptxas fails."""
    from triton import knobs

    before = getattr(_local, "lines", None)
    lines: list[str] = []
    _attach(knobs)
    _local.lines = lines
    try:
        yield lines
    finally:
        _local.lines = before
        _detach()
        if _print_log:
            builtins.print("\n".join(lines))


def _attach(knobs: Any) -> None:
    global _captures, _print_log
    from triton.backends.nvidia import compiler

    with _lock:
        _captures += 1
        if _captures == 1:
            _print_log = bool(knobs.nvidia.dump_ptxas_log)
            compiler.print = _print
            _undo.append(set_knob(knobs.nvidia, "dump_ptxas_log", True))


def _detach() -> None:
    global _captures
    from triton.backends.nvidia import compiler

    with _lock:
        _captures -= 1
        if _captures == 0:
            del compiler.print
            _undo.pop()()


def _print(*words: Any, **options: Any) -> None:
    lines = getattr(_local, "lines", None)
    if lines is None:
        builtins.print(*words, **options)
    else:
        lines.append(" ".join(map(str, words)))


def ptxas_error() -> type[BaseException]:
    """Return the exception that Triton raises when ptxas fails."""
    from triton.runtime.errors import PTXASError

    return PTXASError  # type: ignore[no-any-return]
