"""The functions that TileLang kernels call, while TileLang builds them.

A region only notes which statements it is around, so TileLang schedules and compiles the kernel as it would without it.
The other marks are statements of their own.
"""

from __future__ import annotations

from typing import Any

from tilelang.language.eager.builder import Builder
from tvm import tirx

from warplens.errors import UsageError
from warplens.frontends.tilelang.placed_marks import mark_call
from warplens.frontends.tilelang.statement_spans import MarkedRegion, add_region
from warplens.record.barrier_words import MAX_BARRIER
from warplens.record.layout import MAX_TAG
from warplens.weave.mark_comments import ANCHOR, mark_text

__all__ = [
    "anchor", "arrive", "async_begin", "async_end", "begin", "end", "end_event", "instant", "region", "start_event",
    "value", "wait",
]  # fmt: skip

_CONSTRAINTS = {"s32": "r", "u32": "r", "s64": "l", "u64": "l", "f32": "f", "f64": "d"}


class region:
    """`with region("load"):` marks the statements of its body, wherever TileLang's pipelines and warp specialisation
    move them."""

    def __init__(self, name: str) -> None:
        self.name = _name(name)

    def __enter__(self) -> None:
        self._builder = _builder(self.name)
        self._frame = self._builder._current_stmt_frame()
        self._first = len(self._frame.stmts)
        file, line = self._builder.current_file, self._builder.current_line
        self._region = MarkedRegion(self._begin(), mark_text("E", self.name), file, line)

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is not None:
            return
        self._builder._flush_span_pending()
        statements = list(self._frame.stmts[self._first :])
        current = self._builder._current_stmt_frame()
        if not current.same_as(self._frame):  # the body opened a frame that stays open
            statements += list(current.stmts)
        for statement in statements:
            add_region(statement, self._region)

    def _begin(self) -> tuple[str, ...]:
        return (mark_text("B", self.name),)


class wait(region):
    """`with wait("full", barrier, parity):` marks a wait for the phase of `parity` of a barrier. Both are numbers;
    without `barrier`, it is the mbarrier that the body waits for."""

    def __init__(self, name: str, barrier: int | None = None, parity: int | None = None) -> None:
        super().__init__(name)
        self._words = _barrier_words("wait", self.name, barrier, parity)

    def _begin(self) -> tuple[str, ...]:
        return (*super()._begin(), mark_text("S", self.name, *self._words))


def begin(name: str) -> Any:
    """Begin of region `name`."""
    return _mark("B", name)


def end(name: str) -> Any:
    """End of region `name`."""
    return _mark("E", name)


def instant(name: str) -> Any:
    """Something happened here."""
    return _mark("I", name)


def value(name: str, v: Any) -> Any:
    """Record a number or a scalar expression."""
    expression = tirx.const(v) if isinstance(v, int | float) else v
    dtype = str(getattr(expression, "dtype", ""))
    for prefix, letter in (("float", "f"), ("bfloat", "f"), ("uint", "u"), ("bool", "u"), ("int", "s")):
        if dtype.startswith(prefix) and "x" not in dtype:
            wide = dtype.endswith("64")
            kind = f"{letter}{64 if wide else 32}"
            plain = {"f": "float", "u": "uint", "s": "int"}[letter]
            operand = tirx.Cast(f"{plain}{64 if wide else 32}", expression)
            return _mark("V", name, kind, "$0", operands=((_CONSTRAINTS[kind], operand),))
    raise UsageError(f"value {name!r} must be a scalar, not {dtype or v!r}")


def async_begin(name: str, tag: Any = 0) -> Any:
    """Begin of a span that another place ends; `tag` (0..31) tells spans of one name apart."""
    return _tagged("A", name, tag)


def async_end(name: str, tag: Any = 0) -> Any:
    """End of the async span `name` with the same `tag`."""
    return _tagged("Z", name, tag)


def arrive(name: str, barrier: Any = None, copy: bool = False) -> Any:
    """The warp is about to arrive at a barrier or, with `copy`, to issue a copy that completes on it. `barrier` is a
    number; without it, it is the mbarrier of the next arrival in the kernel."""
    return _barrier("copy" if copy else "arrive", name, barrier)


def start_event(name: str, key: Any = 0) -> Any:
    """Begin of a region that any warp of the block may end; `key` tells regions of one name apart."""
    return _barrier("event_start", name, key)


def end_event(name: str, key: Any = 0) -> Any:
    """End of the region that a warp of the block began with `start_event` and the same `key`."""
    return _barrier("event_end", name, key)


def anchor() -> Any:
    """Tie the clock to the global timer here."""
    _builder("an anchor")
    return mark_call(ANCHOR)


def _mark(letter: str, name: str, *words: str, operands: tuple[tuple[str, Any], ...] = ()) -> Any:
    _builder(_name(name))
    return mark_call(mark_text(letter, name, *words), *operands)


def _tagged(letter: str, name: str, tag: Any) -> Any:
    if not isinstance(tag, int):
        return _mark(letter, name, "$0", operands=(("r", tag),))
    if not 0 <= tag <= MAX_TAG:
        raise UsageError(f"tag {tag} of {name!r}: allowed are 0..{MAX_TAG}")
    return _mark(letter, name, str(tag))


def _barrier(operation: str, name: str, barrier: Any) -> Any:
    if barrier is None or isinstance(barrier, int):
        return _mark("S", name, *_barrier_words(operation, name, barrier, None))
    return _mark("S", name, operation, "u32:$0", "-", "-", "-", operands=(("r", barrier),))


def _barrier_words(operation: str, name: str, barrier: int | None, parity: int | None) -> tuple[str, ...]:
    if barrier is None and operation.startswith("event"):
        raise UsageError(f"the key of {name!r} must be a number")
    if barrier is not None and not (isinstance(barrier, int) and 0 <= barrier <= MAX_BARRIER):
        raise UsageError(f"barrier {barrier} of {name!r}: allowed are 0..{MAX_BARRIER}")
    phase = "-" if parity is None else str(int(parity) & 1)
    return operation, "next:" if barrier is None else f"number:{barrier}", phase, "-", "-"


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"a mark's name must be a string known at compile time, not {name!r}")
    return name


def _builder(what: str) -> Any:
    builder = Builder.current()
    if builder is None:
        raise UsageError(f"the mark {what!r} is outside a TileLang kernel: it must be called in T.prim_func or T.macro")
    return builder
