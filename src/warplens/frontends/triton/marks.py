"""The functions kernels call. Each works in compiled Triton, in Gluon and under the interpreter.

The compiler calls a builtin with `_semantic`; the interpreter calls the same function without it.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.language import core

from warplens.errors import UsageError
from warplens.frontends.triton import interpret
from warplens.frontends.triton.amd_marks import always_taken, amd_marks_wanted
from warplens.record.barrier_words import MAX_BARRIER
from warplens.record.layout import MAX_TAG
from warplens.weave.mark_comments import ANCHOR, mark_text

__all__ = [
    "anchor", "arrive", "async_begin", "async_end", "begin", "end", "end_event", "instant", "region", "start_event",
    "value", "wait",
]  # fmt: skip

_CONSTRAINTS = {"s32": "r", "u32": "r", "s64": "l", "u64": "l", "f32": "f", "f64": "d"}


def begin(name: Any, _semantic: Any = None) -> None:
    """Begin of region `name`."""
    _mark("B", name, _semantic)


def end(name: Any, _semantic: Any = None) -> None:
    """End of region `name`."""
    _mark("E", name, _semantic)


def instant(name: Any, _semantic: Any = None) -> None:
    """Something happened here."""
    _mark("I", name, _semantic)


def value(name: Any, v: Any, _semantic: Any = None) -> None:
    """Record the scalar `v`: an int, a float or a loaded scalar, not a block of values."""
    text = _name(name)
    if _semantic is None:
        interpret.value(text, v)
        return
    operand, kind = _scalar(text, v, _semantic)
    _emit(mark_text("V", text, kind, "$1"), [operand], "," + _CONSTRAINTS[kind], _semantic)


def async_begin(name: Any, tag: Any = 0, _semantic: Any = None) -> None:
    """Begin of a span that another place ends; `tag` (0..31) tells spans of one name apart."""
    _tagged("A", name, tag, _semantic)


def async_end(name: Any, tag: Any = 0, _semantic: Any = None) -> None:
    """End of the async span `name` with the same `tag`."""
    _tagged("Z", name, tag, _semantic)


def arrive(name: Any, barrier: Any = None, copy: Any = False, _semantic: Any = None) -> None:
    """The warp is about to arrive at a barrier or, with `copy`, to issue a copy that completes on it.

    `barrier` is a number that tells barriers apart. Without it, it is the mbarrier of the next arrival in the kernel.
    """
    _barrier("copy" if core._unwrap_if_constexpr(copy) else "arrive", name, barrier, None, _semantic)


def start_event(name: Any, key: Any = 0, _semantic: Any = None) -> None:
    """Begin of a region that any warp of the block may end; `key` tells regions of one name apart."""
    _barrier("event_start", name, key, None, _semantic)


def end_event(name: Any, key: Any = 0, _semantic: Any = None) -> None:
    """End of the region that a warp of the block began with `start_event` and the same `key`."""
    _barrier("event_end", name, key, None, _semantic)


def anchor(_semantic: Any = None) -> None:
    """Tie the clock to the global timer here. Worth it in kernels whose warps all live for many milliseconds: nothing
    else says how fast the clock ran in between."""
    if _semantic is not None:
        _emit(ANCHOR, [], "", _semantic)


class region:
    """`with region("load"):` marks the begin and the end of its body."""

    def __init__(self, name: Any, _semantic: Any = None) -> None:
        self.name, self.semantic = name, _semantic

    def __enter__(self) -> None:
        begin(self.name, _semantic=self.semantic)

    def __exit__(self, *_: object) -> None:
        end(self.name, _semantic=self.semantic)


class wait(region):
    """`with wait("full", barrier, parity):` marks a wait for the phase of `parity` of a barrier.

    Without `barrier`, it is the mbarrier that the body waits for.
    """

    def __init__(self, name: Any, barrier: Any = None, parity: Any = None, _semantic: Any = None) -> None:
        super().__init__(name, _semantic=_semantic)
        self.barrier, self.parity = barrier, parity

    def __enter__(self) -> None:
        super().__enter__()
        _barrier("wait", self.name, self.barrier, self.parity, self.semantic)


for _function in (
    begin, end, instant, value, async_begin, async_end, arrive, start_event, end_event, anchor, region, wait
):  # fmt: skip
    setattr(_function, core.TRITON_BUILTIN, True)


def _mark(letter: str, name: Any, semantic: Any) -> None:
    text = _name(name)
    if semantic is None:
        interpret.mark(letter, text)
    else:
        _emit(mark_text(letter, text), [], "", semantic)


def _tagged(letter: str, name: Any, tag: Any, semantic: Any) -> None:
    text = _name(name)
    tag = core._unwrap_if_constexpr(tag)
    if isinstance(tag, int) and not 0 <= tag <= MAX_TAG:
        raise UsageError(f"tag {tag} of {text!r}: allowed are 0..{MAX_TAG}")
    if semantic is None:
        interpret.mark(letter, text, interpret.scalar(tag))
    elif isinstance(tag, int):
        _emit(mark_text(letter, text, str(tag)), [], "", semantic)
    else:
        operand, _ = _scalar(text, tag, semantic)
        _emit(mark_text(letter, text, "$1"), [operand.to(tl.int32, _semantic=semantic)], ",r", semantic)


def _barrier(operation: str, name: Any, barrier: Any, parity: Any, semantic: Any) -> None:
    text, barrier, parity = _name(name), core._unwrap_if_constexpr(barrier), core._unwrap_if_constexpr(parity)
    if semantic is None:
        if operation != "wait":
            interpret.mark("I", text)
        return
    if barrier is None and operation.startswith("event"):
        raise UsageError(f"the key of {text!r} must be a number")
    if isinstance(barrier, int) and not 0 <= barrier <= MAX_BARRIER:
        raise UsageError(f"barrier {barrier} of {text!r}: allowed are 0..{MAX_BARRIER}")
    arguments: list[Any] = []
    words = [operation, "next:" if barrier is None else f"number:{barrier}"]
    if barrier is not None and not isinstance(barrier, int):
        arguments.append(_scalar(text, barrier, semantic)[0].to(tl.int32, _semantic=semantic))
        words[1] = "u32:$1"
    words.append("-")
    if isinstance(parity, int):
        words[2] = str(parity & 1)
    elif parity is not None:
        arguments.append(_scalar(text, parity, semantic)[0].to(tl.int32, _semantic=semantic))
        words[2] = f"${len(arguments)}"
    if _backend(semantic) == "cuda":  # what a warp does with a barrier is recorded on NVIDIA's GPUs only
        _emit(mark_text("S", text, *words, "-", "-"), arguments, ",r" * len(arguments), semantic)


def _emit(text: str, arguments: list[Any], constraints: str, semantic: Any) -> None:
    if _backend(semantic) == "cuda":
        # Triton wants a result, so the comment rides on a dead `mov`.
        _comment(f"mov.u32 $0, 0; // {text}", f"=r{constraints}", arguments, semantic)
    elif amd_marks_wanted():
        with always_taken(semantic):
            _comment(f"; {text}", "=s" + ",v" * len(arguments), arguments, semantic)
    # Any other kernel is compiled as if it had no marks.


def _comment(text: str, constraints: str, arguments: list[Any], semantic: Any) -> None:
    core.inline_asm_elementwise(
        text,
        f"{constraints},~{{memory}}",  # the clobber keeps it in order with memory accesses
        arguments,
        dtype=tl.int32,
        is_pure=False,
        pack=1,
        _semantic=semantic,
    )


def _backend(semantic: Any) -> str:
    return str(semantic.builder.options.backend_name)


def _name(name: Any) -> str:
    text = core._unwrap_if_constexpr(name)
    if not isinstance(text, str) or not text:
        raise UsageError(f"a mark's name must be a string known at compile time, not {text!r}")
    return text


def _scalar(name: str, v: Any, semantic: Any) -> tuple[Any, str]:
    """`v` as a scalar tensor and the PTX type of its register."""
    tensor = semantic.to_tensor(core._unwrap_if_constexpr(v))
    if tensor.type.is_block():
        shape = [core._unwrap_if_constexpr(size) for size in tensor.shape]
        raise UsageError(f"value {name!r} is a block of shape {shape}: reduce it to a scalar first")
    dtype = tensor.dtype
    if dtype.is_ptr():
        return tensor.to(tl.int64, bitcast=True, _semantic=semantic), "u64"
    if dtype.is_floating():
        wanted = tl.float64 if dtype.is_fp64() else tl.float32
        return tensor.to(wanted, _semantic=semantic), "f64" if dtype.is_fp64() else "f32"
    wide = dtype.primitive_bitwidth > 32
    signed = dtype.is_int_signed() and not dtype.is_bool()
    wanted = (tl.int64 if signed else tl.uint64) if wide else (tl.int32 if signed else tl.uint32)
    return tensor.to(wanted, _semantic=semantic), ("s" if signed else "u") + ("64" if wide else "32")
