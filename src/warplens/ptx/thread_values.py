"""What the registers of a function hold in each thread of a block, as far as the text tells.

Unlike `lane_values`, which knows how the lanes of one warp differ, this compares the threads of different warps: a
value is a number per thread, on top of a sum of unknown values that all threads share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from warplens.ptx.lane_values import COMPARISONS, LANES, UNIFORM, parsed_number, signed
from warplens.ptx.operands import RegisterWriters
from warplens.ptx.tree import Function, Instruction

Threads = npt.NDArray[np.int64]
_REGISTER = re.compile(r"%?[A-Za-z_$][\w$.]*")
_THREAD = {"%tid.x": 0, "%tid.y": 1, "%tid.z": 2}
_MOST_THREADS, _USUAL = 1024, 256
_WIDTHS, _OTHER_WIDTHS = (32, 16), (8, 64, 128)
_FULL_WARP = 31
_DEEPEST = 400


@dataclass(frozen=True)
class ThreadValue:
    """`threads` is what each thread has on top of the `terms`, unknown values that all threads share, each so many
    times. It is None where threads differ in a way that is not known; then `terms` says what else is in the sum. The
    terms of a value that is not `firm` change while the kernel runs."""

    threads: Threads | None
    terms: Mapping[str, int] = field(default_factory=dict)
    firm: bool = True

    @property
    def uniform(self) -> bool:
        """Whether all threads have the same."""
        return self.threads is not None and bool((self.threads == self.threads[0]).all())

    @property
    def number(self) -> int | None:
        """The number that all threads have, if it is known."""
        return int(self.threads[0]) if self.threads is not None and self.uniform and not self.terms else None

    @property
    def known(self) -> bool:
        """Whether nothing is added to what each thread has."""
        return self.threads is not None and not self.terms


@dataclass(frozen=True)
class BlockShapes:
    """The row lengths and the numbers of threads that blocks of a function may have: the usual ones, and others for
    which what is said of all blocks must hold as well."""

    usual: Sequence[tuple[int, int]]
    others: Sequence[tuple[int, int]] = ()


def block_shapes(function: Function) -> BlockShapes:
    """One shape if the function says its size and has no rows. A smaller block has some of the threads of a larger
    one."""
    exact = function.performance.get("reqntid")
    sizes = exact or function.performance.get("maxntid")
    threads = min(math.prod(sizes) if sizes else _USUAL, _MOST_THREADS)
    threads = max(threads // LANES, 1) * LANES
    most = threads if sizes else _MOST_THREADS
    if not any("%tid.y" in one.arguments for one in function.instructions()):
        return BlockShapes([(threads, threads)], [] if sizes else [(most, most)])
    if exact and exact[0] > 1:
        return BlockShapes([(exact[0], threads)])
    others = [(width, most) for width in (_OTHER_WIDTHS if sizes else _WIDTHS + _OTHER_WIDTHS)]
    return BlockShapes([(width, threads) for width in _WIDTHS], others)


class ThreadValues:
    """The values of the registers of a function in a block with rows of `width` threads."""

    def __init__(self, writers: RegisterWriters, width: int, threads: int) -> None:
        self._writers, self.count = writers, threads
        number = np.arange(threads, dtype=np.int64)
        self._index = (number % width, number // width, np.zeros(threads, np.int64))
        self._lane = number % LANES
        self._known: dict[str, ThreadValue] = {}
        self._depth = 0

    def of(self, operand: str) -> ThreadValue:
        """The value of a register, a number, a special register or the address of a variable."""
        text = operand.strip()
        if (number := parsed_number(text)) is not None:
            return self._constant(number)
        if text in _THREAD:
            return ThreadValue(self._index[_THREAD[text]])
        if text == "%laneid":
            return ThreadValue(self._lane)
        if "{" in text:
            return _NOT_KNOWN  # several registers at once
        if text not in self._known:
            self._known[text] = self._written(text)
        return self._known[text]

    def address(self, operand: str) -> ThreadValue:
        """The address of a memory operand such as `[%rd1+16]`."""
        total = self._constant(0)
        for part in operand.strip().strip("[]").split("+"):
            total = _add(total, self.of(part))
        return total

    def _constant(self, number: int) -> ThreadValue:
        return ThreadValue(np.full(self.count, number, np.int64))

    def _opaque(self, name: str, firm: bool = True) -> ThreadValue:
        return ThreadValue(np.zeros(self.count, np.int64), {name: 1}, firm)

    def _written(self, name: str) -> ThreadValue:
        writers = self._writers.of(name)
        if not writers or not _REGISTER.fullmatch(name):
            # Variables, floating-point numbers, and special registers, most of which differ from thread to thread.
            alike = not name.startswith("%") or (UNIFORM.match(name) and name != "%warpid")
            return self._opaque(name) if alike else _NOT_KNOWN
        if self._depth > _DEEPEST:
            return _NOT_KNOWN
        self._depth += 1
        try:
            if len(writers) == 1 and not writers[0].predicate and not self._writers.depends(writers[0], (name,)):
                return self._result(writers[0], name)
            return self._of_many(name, writers)
        finally:
            self._depth -= 1

    def _of_many(self, name: str, writers: Sequence[Instruction]) -> ThreadValue:
        """The value of a register that is written in several places, as by a loop: how its threads differ, if that is
        the same wherever it is written."""
        first = [one for one in writers if not self._writers.depends(one, (name,))]
        begins = [self._result(one, name) for one in first]
        if not begins or any(one.threads is None for one in begins):
            return _NOT_KNOWN
        apart = begins[0].threads - begins[0].threads[0]  # type: ignore[index]
        before = set(self._known)
        self._known[name] = ThreadValue(apart, {name: 1}, firm=False)
        found = [*begins, *(self._result(one, name) for one in writers if one not in first)]
        alike = all(one.threads is not None and ((one.threads - one.threads[0]) == apart).all() for one in found)
        if not alike:
            for other in set(self._known) - before:
                del self._known[other]
            return _NOT_KNOWN
        return self._known[name]

    def _result(self, one: Instruction, name: str) -> ThreadValue:
        sources = [text.strip() for text in one.operands[1:]]
        first = one.operands[0].partition("|")[0].strip() if one.operands else ""
        if not sources or first != name:
            return _NOT_KNOWN  # a damaged instruction, or a second result
        if one.opcode == "ld":
            return self._loaded(one, sources[0], name)
        if one.opcode == "shfl":
            return self._shuffled(one, sources)
        if one.opcode not in _PURE:
            return _NOT_KNOWN
        values = [self.of(text) for text in sources]
        if not _is_float(one.modifiers):
            if one.opcode in ("mov", "cvta") and len(values) == 1:
                return values[0]
            if one.opcode == "cvt" and len(values) == 1:
                return _converted(one.modifiers, values[0])
            operation = _OPERATIONS.get(one.opcode)
            if operation is not None and not {"hi", "sat"} & set(one.modifiers):
                kept = [_reduced(one.modifiers, value) if "wide" in one.modifiers else value for value in values]
                if (found := operation(kept)) is not None:
                    return found
            many, compute = _NUMERIC.get(one.opcode, (0, None))
            if compute is not None and len(values) == many and all(value.known for value in values):
                result = compute(one.modifiers, *(_reduced(one.modifiers, value).threads for value in values))
                if result is not None:
                    return ThreadValue(np.asarray(result, np.int64))
        if all(value.uniform for value in values):
            return self._opaque(name, all(value.firm for value in values))
        return _NOT_KNOWN

    def _loaded(self, one: Instruction, source: str, name: str) -> ThreadValue:
        if "param" in one.modifiers:
            return self._opaque(source.strip("[] "))
        if "local" in one.modifiers:
            return _NOT_KNOWN  # each thread has its own
        return self._opaque(name, firm=False) if self.address(source).uniform else _NOT_KNOWN

    def _shuffled(self, one: Instruction, sources: list[str]) -> ThreadValue:
        """What one lane of a whole warp passes on."""
        if "idx" not in one.modifiers or len(sources) < 3 or self.of(sources[2]).number != _FULL_WARP:
            return _NOT_KNOWN
        given, lane = self.of(sources[0]), self.of(sources[1]).number
        if given.threads is None or lane is None:
            return _NOT_KNOWN
        return replace(given, threads=np.repeat(given.threads.reshape(-1, LANES)[:, lane % LANES], LANES))


_NOT_KNOWN = ThreadValue(None, firm=False)
_PURE = frozenset(
    {"mov", "cvt", "cvta", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "neg", "min", "max",
     "abs", "div", "rem", "bfe", "bfi", "selp", "setp", "set", "slct", "lop3", "prmt", "fma", "shf", "popc", "clz",
     "bfind", "brev", "mul24", "mad24", "sad", "cnot", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"}
)  # fmt: skip
"""Instructions whose result depends on their operands alone: threads with the same operands get the same."""


def _is_float(modifiers: Sequence[str]) -> bool:
    return any(name.startswith(("f", "bf", "tf")) and name[-1:].isdigit() for name in modifiers)


def _reduced(modifiers: Sequence[str], value: ThreadValue) -> ThreadValue:
    """A known number as the type of an instruction's operands has it."""
    kind = next((name for name in reversed(modifiers) if name[:1] in "usb" and name[1:].isdigit()), "")
    if not kind or not value.known or value.threads is None or (bits := int(kind[1:])) >= 64:
        return value
    left = value.threads & ((1 << bits) - 1)
    return replace(value, threads=left - ((left >> (bits - 1)) << bits) if kind[0] == "s" else left)


def _converted(modifiers: Sequence[str], value: ThreadValue) -> ThreadValue:
    kinds = [name for name in modifiers if name[:1] in "usb" and name[1:].isdigit()]
    return _reduced(kinds[:1], _reduced(kinds, value))


def _add(first: ThreadValue, second: ThreadValue, sign: int = 1) -> ThreadValue:
    terms = dict(first.terms)
    for name, times in second.terms.items():
        terms[name] = terms.get(name, 0) + sign * times
    terms = {name: times for name, times in terms.items() if times}
    firm = first.firm and second.firm
    if first.threads is None or second.threads is None:
        return ThreadValue(None, terms, firm)
    return ThreadValue(first.threads + sign * second.threads, terms, firm)


def difference(first: ThreadValue, second: ThreadValue) -> ThreadValue:
    return _add(first, second, -1)


def _times(value: ThreadValue, factor: int) -> ThreadValue:
    factor = signed(factor)
    terms = {name: times * factor for name, times in value.terms.items()} if factor else {}
    return ThreadValue(None if value.threads is None else value.threads * factor, terms, value.firm)


def _multiply(values: list[ThreadValue]) -> ThreadValue | None:
    for one, other in (values[:2], values[1::-1]):
        if (factor := other.number) is not None:
            return _times(one, factor)
    return None


def _multiply_add(values: list[ThreadValue]) -> ThreadValue | None:
    product = _multiply(values)
    return None if product is None else _add(product, values[2])


def _shift_left(values: list[ThreadValue]) -> ThreadValue | None:
    by = values[1].number
    return None if by is None else _times(values[0], 1 << (by & 63))


_OPERATIONS: dict[str, Callable[[list[ThreadValue]], ThreadValue | None]] = {
    "add": lambda values: _add(values[0], values[1]) if len(values) == 2 else None,
    "sub": lambda values: _add(values[0], values[1], -1) if len(values) == 2 else None,
    "mul": lambda values: _multiply(values) if len(values) == 2 else None,
    "mad": lambda values: _multiply_add(values) if len(values) == 3 else None,
    "shl": lambda values: _shift_left(values) if len(values) == 2 else None,
}
_Numbers = Callable[..., Threads | None]


def _compared(modifiers: Sequence[str], first: Threads, second: Threads) -> Threads | None:
    test = next((COMPARISONS[name] for name in modifiers if name in COMPARISONS), None)
    return None if test is None else test(first, second)


def _not(modifiers: Sequence[str], value: Threads) -> Threads:
    return (value == 0).astype(np.int64) if "pred" in modifiers else ~value


def _divided(modifiers: Sequence[str], value: Threads, by: Threads) -> Threads | None:
    return None if (by == 0).any() else np.sign(value) * np.sign(by) * (np.abs(value) // np.abs(by))


def _left_over(modifiers: Sequence[str], value: Threads, by: Threads) -> Threads | None:
    return None if (by == 0).any() else np.sign(value) * (np.abs(value) % np.abs(by))


def _high_half(modifiers: Sequence[str], value: Threads, by: Threads) -> Threads | None:
    narrow = "hi" in modifiers and not any(name.endswith("64") for name in modifiers)
    return (value * by) >> 32 if narrow else None  # a division by a constant is such a product


def _selected(modifiers: Sequence[str], first: Threads, second: Threads, test: Threads) -> Threads:
    return np.where(test != 0, first, second)


_NUMERIC: dict[str, tuple[int, _Numbers]] = {
    "mul": (2, _high_half),
    "setp": (2, _compared),
    "not": (1, _not),
    "and": (2, lambda _, a, b: a & b),
    "or": (2, lambda _, a, b: a | b),
    "xor": (2, lambda _, a, b: a ^ b),
    "shr": (2, lambda _, a, b: a >> (b & 63)),
    "min": (2, lambda _, a, b: np.minimum(a, b)),
    "max": (2, lambda _, a, b: np.maximum(a, b)),
    "neg": (1, lambda _, a: -a),
    "div": (2, _divided),
    "rem": (2, _left_over),
    "selp": (3, _selected),
    "bfe": (3, lambda _, a, start, length: (a >> (start & 63)) & ((np.int64(1) << np.minimum(length, 62)) - 1)),
}
"""Of instructions of so many operands, what they compute from known numbers."""
