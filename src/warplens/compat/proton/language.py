"""Proton's marks (`import warplens.compat.proton.language as pl`): warplens marks under Proton's names."""

from __future__ import annotations

from typing import Any

from triton.language import core

from warplens.errors import UsageError
from warplens.triton import begin as enter_scope
from warplens.triton import end as exit_scope
from warplens.triton import end_event as end_named_event
from warplens.triton import region as scope
from warplens.triton import start_event as start_named_event

__all__ = [
    "allocate_event", "disable_semantic", "enable_semantic", "end_event", "enter_scope", "exit_scope", "scope",
    "start_event",
]  # fmt: skip

SEMANTICS = ("triton", "gluon")


class ProtonEvent(core.base_value):  # type: ignore[misc]
    """A span that one place begins and another one ends, in the same warp or another one of the block. It is a name,
    and leaves no value in the kernel."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.type = ProtonEventType(name)

    def _flatten_ir(self, handles: list[Any]) -> None:
        """Add nothing: an event has no value at run time."""

    def _set_name(self, builder: Any, name: str) -> None:
        """Keep the event's own name, whatever the variable is called."""


class ProtonEventType(core.base_type):  # type: ignore[misc]
    """The type of an event; events of one name are alike."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProtonEventType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def _unflatten_ir(self, handles: list[Any], cursor: int) -> tuple[ProtonEvent, int]:
        return ProtonEvent(self.name), cursor

    def _flatten_ir_types(self, builder: Any, out: list[Any]) -> None:
        """Add nothing: an event has no value at run time."""

    def mangle(self) -> str:
        return "event_" + self.name.encode().hex()


def allocate_event(name: Any, _semantic: Any = None) -> ProtonEvent:
    """An event: a span that one place begins and another one ends, perhaps in another warp."""
    return ProtonEvent(core._unwrap_if_constexpr(name))


def start_event(event: ProtonEvent, _semantic: Any = None) -> None:
    """Begin of an event."""
    start_named_event(event.name, _semantic=_semantic)


def end_event(event: ProtonEvent, _semantic: Any = None) -> None:
    """End of an event."""
    end_named_event(event.name, _semantic=_semantic)


for _function in (allocate_event, start_event, end_event):
    setattr(_function, core.TRITON_BUILTIN, True)


def enable_semantic(semantic_name: str) -> None:
    """Do nothing: warplens marks always work in both languages."""
    _check(semantic_name)


def disable_semantic(semantic_name: str) -> None:
    """Raise an error: marks cannot be disabled for one language only."""
    _check(semantic_name)
    raise UsageError(
        f"disable_semantic({semantic_name!r}) is not supported: marks cannot be disabled per language; "
        "outside proton.start() and finalize() they cost nothing"
    )


def _check(semantic_name: str) -> None:
    if semantic_name not in SEMANTICS:
        raise UsageError(f"unknown semantic {semantic_name!r} (allowed: {', '.join(map(repr, SEMANTICS))})")
