"""The functions kernels call. A name must be a string known while the kernel is traced."""

from __future__ import annotations

from typing import Any

from cutlass import Float64, Int32, Int64, Uint32, Uint64
from cutlass._mlir import ir
from cutlass.base_dsl.typing import Boolean, Float, Integer, Numeric, as_numeric

from warplens.errors import UsageError
from warplens.frontends.cute import record_ptx
from warplens.frontends.cute.asm import emit
from warplens.frontends.cute.traced_kernel import current
from warplens.record.barrier_words import MAX_BARRIER, OPERATION_SHIFT, PARITY_SHIFT, BarrierWord, Operation
from warplens.record.layout import MAX_TAG, TAG_SHIFT, Kind, ValueType, word0

__all__ = [
    "Token", "anchor", "arrive", "async_begin", "async_end", "begin", "end", "end_event", "instant", "region",
    "start_event", "value", "wait",
]  # fmt: skip


def begin(name: str) -> None:
    """Begin of region `name`."""
    _mark(Kind.BEGIN, name, begins=True)


def end(name: str) -> None:
    """End of region `name`."""
    _mark(Kind.END, name, ends=True)


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
    recording = current(f"wlc.value({text!r})")
    if not recording.enabled:
        return
    operand, constraint, kind = scalar(text, v)
    word = word0(Kind.VALUE, recording.region(text), kind)
    emit(record_ptx.value(word, kind, recording.full, narrow=constraint == "r"), [operand], constraint)


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
    recording = current("wlc.anchor()")
    if recording.enabled:
        emit(record_ptx.anchor(word0(Kind.ANCHOR), recording.full))


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
    token = Token(mark_name(name, "wlc.async_begin"), _tag(name, tag))
    _fly(Kind.ASYNC_BEGIN, token, begins=True)
    return token


def async_end(which: Token | str, tag: Any = 0) -> None:
    """End of the span that gave this token, or of the span `which` with the same `tag`."""
    token = which if isinstance(which, Token) else Token(mark_name(which, "wlc.async_end"), _tag(which, tag))
    _fly(Kind.ASYNC_END, token, ends=True)


def _barrier(operation: Operation, name: str, barrier: Any, parity: Any = 0) -> None:
    what = f"wlc.{operation.name.lower()}"
    text = mark_name(name, what)
    recording = current(f"{what}({text!r})")
    if not recording.enabled:
        return
    which, phase = _whole_number(text, barrier), _whole_number(text, parity)
    if isinstance(which, int) and isinstance(phase, int):
        if not 0 <= which <= MAX_BARRIER:
            raise UsageError(f"barrier {which} of {text!r}: allowed are 0..{MAX_BARRIER}")
        packed = Int64(BarrierWord(operation, which, phase & 1).pack())
    else:
        high = (Int64(phase) & Int64(1)) << Int64(PARITY_SHIFT) | Int64(int(operation) << OPERATION_SHIFT)
        packed = high | Int64(which) & Int64(MAX_BARRIER)
    word = word0(Kind.VALUE, recording.region(text), ValueType.BARRIER)
    emit(record_ptx.value(word, ValueType.BARRIER, recording.full, narrow=False), [packed.ir_value()], "l")


def _whole_number(name: str, v: Any) -> Any:
    """An int, or an integer of the kernel; a pointer counts as its address."""
    v = v.toint() if hasattr(v, "toint") else v
    if isinstance(v, bool) or not isinstance(v, (int, Integer)):
        raise UsageError(f"{name!r} got {_shown(v)}: give a pointer in shared memory or a whole number")
    return v


def _mark(kind: Kind, name: str, **edge: bool) -> None:
    what = f"wlc.{kind.name.lower()}"
    text = mark_name(name, what)
    recording = current(f"{what}({text!r})")
    if recording.enabled:
        recording.record(word0(kind, recording.region(text, **edge)))


def _fly(kind: Kind, token: Token, **edge: bool) -> None:
    recording = current(f"wlc.{kind.name.lower()}({token.name!r})")
    if not recording.enabled:
        return
    ident = recording.region(token.name, flies=True, **edge)
    if isinstance(token.tag, int):
        recording.record(word0(kind, ident, token.tag))
        return
    word = (token.tag & Int32(MAX_TAG)) << Int32(TAG_SHIFT) | Int32(word0(kind, ident))
    emit(record_ptx.records(["$0"], recording.full), [word.ir_value()], "r")


def mark_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what}: the name must be a string known at compile time, not {_shown(name)}")
    return name


def _tag(name: str, tag: Any) -> Any:
    if isinstance(tag, bool) or not isinstance(tag, (int, Integer)):
        raise UsageError(f"tag {_shown(tag)} of {name!r}: give a number 0..{MAX_TAG} or an Int32 of the kernel")
    if isinstance(tag, int):
        if not 0 <= tag <= MAX_TAG:
            raise UsageError(f"tag {tag} of {name!r}: allowed are 0..{MAX_TAG}")
        return tag
    return Int32(tag)


def scalar(name: str, v: Any) -> tuple[Any, str, ValueType]:
    """`v` as an operand, of 32 bits if it is a small integer and else of 64; its constraint; and how it reads.

    A pointer counts as its address.
    """
    v = v.toint() if hasattr(v, "toint") else v
    v = as_numeric(v) if isinstance(v, ir.Value) else v
    if isinstance(v, (bool, int)):
        if not -(1 << 63) <= v < 1 << 64:
            raise UsageError(f"value {name!r} is {v}: it does not fit in 64 bits")
        if v >= 1 << 63:
            return Int64(v - (1 << 64)).ir_value(), "l", ValueType.U64
        return Int64(int(v)).ir_value(), "l", ValueType.I64
    if isinstance(v, float):
        return Float64(v).ir_value(), "d", ValueType.F64
    if isinstance(v, Boolean):
        return Int32(v).ir_value(), "r", ValueType.I64
    if isinstance(v, Integer):
        kind = ValueType.I64 if type(v).signed else ValueType.U64
        if type(v).width <= 32:
            return (Int32 if type(v).signed else Uint32)(v).ir_value(), "r", kind
        return (Int64 if type(v).signed else Uint64)(v).ir_value(), "l", kind
    if isinstance(v, (Float, Numeric)):
        return Float64(v).ir_value(), "d", ValueType.F64
    raise UsageError(f"value {name!r} is {_shown(v)}: give one number, such as an element of a tensor")


def _shown(v: Any) -> str:
    return repr(v) if isinstance(v, (str, int, float, type(None))) else f"a {type(v).__name__} of the kernel"
