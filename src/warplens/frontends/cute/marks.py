"""The functions kernels call. A name must be a string known while the kernel is traced."""

from __future__ import annotations

from typing import Any

from cutlass import Int32

from warplens.frontends.cute.mark_arguments import checked_tag, mark_name
from warplens.frontends.cute.traced_kernel import current
from warplens.record.barrier_words import Operation
from warplens.record.layout import Kind

__all__ = [
    "Token", "anchor", "arrive", "async_begin", "async_end", "begin", "end", "end_event", "instant", "region",
    "start_event", "value", "wait",
]  # fmt: skip


def begin(name: str) -> None:
    """Begin of region `name`."""
    _mark(Kind.BEGIN, name)


def end(name: str) -> None:
    """End of region `name`."""
    _mark(Kind.END, name)


def instant(name: str) -> None:
    """Something happened here."""
    _mark(Kind.INSTANT, name)


class region:
    """`with region("load"):` marks the begin and the end of its body."""

    def __init__(self, name: str) -> None:
        self.name = mark_name(name, "wlc.region")

    def __enter__(self) -> None:
        begin(self.name)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            end(self.name)


def value(name: str, v: Any) -> None:
    """Record the scalar `v`, a number known at compile time or a value of the kernel."""
    text = mark_name(name, "wlc.value")
    kernel = current(f"wlc.value({text!r})")
    if kernel.enabled:
        kernel.value(text, v)


def arrive(name: str, barrier: Any, *, copy: bool = False) -> None:
    """The warp is about to arrive at `barrier` or, with `copy`, to issue a copy that completes on it.

    `barrier` is the pointer of an mbarrier in shared memory, or a number that tells barriers apart.
    """
    _barrier(Operation.COPY if copy else Operation.ARRIVE, name, barrier)


class wait(region):
    """`with wait("full", barrier, parity):` marks a wait for the phase of `parity` of a barrier (see `arrive`)."""

    def __init__(self, name: str, barrier: Any, parity: Any) -> None:
        super().__init__(name)
        self.barrier, self.parity = barrier, parity

    def __enter__(self) -> None:
        super().__enter__()
        _barrier(Operation.WAIT, self.name, self.barrier, self.parity)


def start_event(name: str, key: Any = 0) -> None:
    """Begin of a region that any warp of the block may end; `key` tells regions of one name apart."""
    _barrier(Operation.EVENT_START, name, key)


def end_event(name: str, key: Any = 0) -> None:
    """End of the region that a warp of the block began with `start_event` and the same `key`."""
    _barrier(Operation.EVENT_END, name, key)


def anchor() -> None:
    """Tie this warp's clock to the global timer here: for kernels of many milliseconds."""
    kernel = current("wlc.anchor()")
    if kernel.enabled:
        kernel.anchor()


class Token:
    """A span in flight: what `async_begin` gives and `async_end` takes. It may cross loops and branches."""

    def __init__(self, name: str, tag: Any) -> None:
        self.name, self.tag = name, tag

    # A loop wants what it carries to look the same on every pass, so a constant tag is a value there too.

    def __extract_mlir_values__(self) -> list[Any]:
        return [Int32(self.tag).ir_value()]

    def __new_from_mlir_values__(self, values: list[Any]) -> Token:
        return Token(self.name, Int32(values[0]))


def async_begin(name: str, tag: Any = 0) -> Token:
    """Begin of a span that another place ends; `tag` (0..31) tells spans of one name that overlap apart."""
    token = Token(mark_name(name, "wlc.async_begin"), checked_tag(name, tag))
    _fly(Kind.ASYNC_BEGIN, token)
    return token


def async_end(which: Token | str, tag: Any = 0) -> None:
    """End of the span that gave this token, or of the span `which` with the same `tag`."""
    token = which if isinstance(which, Token) else Token(mark_name(which, "wlc.async_end"), checked_tag(which, tag))
    _fly(Kind.ASYNC_END, token)


def _barrier(operation: Operation, name: str, barrier: Any, parity: Any = 0) -> None:
    what = f"wlc.{operation.name.lower()}"
    text = mark_name(name, what)
    kernel = current(f"{what}({text!r})")
    if kernel.enabled:
        kernel.barrier(operation, text, barrier, parity)


def _mark(kind: Kind, name: str) -> None:
    what = f"wlc.{kind.name.lower()}"
    text = mark_name(name, what)
    kernel = current(f"{what}({text!r})")
    if kernel.enabled:
        kernel.mark(kind, text)


def _fly(kind: Kind, token: Token) -> None:
    kernel = current(f"wlc.{kind.name.lower()}({token.name!r})")
    if kernel.enabled:
        kernel.tagged(kind, token.name, token.tag)
