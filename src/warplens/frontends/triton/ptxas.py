"""What ptxas said of a kernel: Triton runs it with `-v` and throws its words away, so they are caught on the way."""

from __future__ import annotations

import builtins
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from warplens.frontends.triton.requirement import set_knob


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of an SM. `serialized` says that ptxas gave up on overlapping its wgmmas, `warnings` how many
    lines it warned of anything."""

    registers: int = 0
    spills: int = 0
    serialized: bool = False
    warnings: int = 0

    @staticmethod
    def of(log: str) -> Resources:
        return Resources(
            max((int(count) for count in re.findall(r"Used (\d+) registers", log)), default=0),
            sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", log)),
            "wgmma" in log and "serialized" in log,
            sum("warning" in line for line in log.splitlines()),
        )

    def describe(self) -> dict[str, int]:
        """As a launch keeps it."""
        return {"registers": self.registers, "spills": self.spills, "serialized": int(self.serialized)}


_local = threading.local()
_lock = threading.Lock()
_listeners = 0
_undo: list[Callable[[], None]] = []
_wanted = False
"""Whether the user asked for ptxas's log."""


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collects what Triton's backend prints in this thread: ptxas's log, and its report where ptxas fails."""
    from triton import knobs

    before = getattr(_local, "heard", None)
    heard: list[str] = []
    _attach(knobs)
    _local.heard = heard
    try:
        yield heard
    finally:
        _local.heard = before
        _detach()
        if _wanted:
            builtins.print("\n".join(heard))


def _attach(knobs: Any) -> None:
    global _listeners, _wanted
    from triton.backends.nvidia import compiler

    with _lock:
        _listeners += 1
        if _listeners == 1:
            _wanted = bool(knobs.nvidia.dump_ptxas_log)
            compiler.print = _print
            _undo.append(set_knob(knobs.nvidia, "dump_ptxas_log", True))


def _detach() -> None:
    global _listeners
    from triton.backends.nvidia import compiler

    with _lock:
        _listeners -= 1
        if _listeners == 0:
            del compiler.print
            _undo.pop()()


def _print(*words: Any, **options: Any) -> None:
    heard = getattr(_local, "heard", None)
    if heard is None:
        builtins.print(*words, **options)
    else:
        heard.append(" ".join(map(str, words)))


def ptxas_error() -> type[BaseException]:
    """What Triton raises where ptxas fails."""
    from triton.runtime.errors import PTXASError

    return PTXASError  # type: ignore[no-any-return]
