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

from warplens.ptx.lane_values import COMPARISONS, LANES, parsed_number, signed
from warplens.ptx.operands import RegisterWriters
from warplens.ptx.tree import Function, Instruction

Threads = npt.NDArray[np.int64]
_REGISTER = re.compile(r"%?[A-Za-z_$][\w$.]*")
_THREAD = {"%tid.x": 0, "%tid.y": 1, "%tid.z": 2}
_MOST_THREADS, _USUAL = 1024, 256
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
        return self.threads is not None and bool((self.threads == self.threads[0]).all())

    @property
    def number(self) -> int | None:
        """The number that all threads have, if it is known."""
        return int(self.threads[0]) if self.threads is not None and self.uniform and not self.terms else None

    @property
    def known(self) -> bool:
        """Whether nothing is added to what each thread has."""
        return self.threads is not None and not self.terms


def block_shapes(function: Function) -> list[tuple[int, int]]:
    """The row lengths and the number of threads that blocks of a function may have: one shape unless it has rows."""
    sizes = function.performance.get("reqntid") or function.performance.get("maxntid")
    threads = min(math.prod(sizes) if sizes else _USUAL, _MOST_THREADS)
    threads = max(threads // LANES, 1) * LANES
    rows = any("%tid.y" in one.arguments for one in function.instructions())
    return [(width, threads) for width in (32, 16)] if rows else [(threads, threads)]


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
            return self._opaque(name)
        if self._depth > _DEEPEST:
            return ThreadValue(None, firm=False)
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
            return ThreadValue(None, firm=False)
        apart = begins[0].threads - begins[0].threads[0]  # type: ignore[index]
        before = set(self._known)
        self._known[name] = ThreadValue(apart, {name: 1}, firm=False)
        found = [*begins, *(self._result(one, name) for one in writers if one not in first)]
        alike = all(one.threads is not None and ((one.threads - one.threads[0]) == apart).all() for one in found)
        if not alike:
            for other in set(self._known) - before:
                del self._known[other]
            return ThreadValue(None, firm=False)
        return self._known[name]

    def _result(self, one: Instruction, name: str) -> ThreadValue:
        sources = [text.strip() for text in one.operands[1:]]
        if not sources:
            return ThreadValue(None, firm=False)  # a damaged instruction
        if one.opcode == "ld":
            if "param" in one.modifiers:
                return self._opaque(sources[0].strip("[] "))
            address = self.address(sources[0])
            return self._opaque(name, firm=False) if address.uniform else ThreadValue(None, firm=False)
        if one.opcode == "shfl" and "idx" in one.modifiers and len(sources) > 1:
            given, lane = self.of(sources[0]), self.of(sources[1]).number
            if given.threads is None or lane is None:
                return ThreadValue(None, firm=False)
            return replace(given, threads=np.repeat(given.threads.reshape(-1, LANES)[:, lane % LANES], LANES))
        if one.opcode in ("mov", "cvt", "cvta") and len(sources) == 1:
            return self.of(sources[0])
        values = [self.of(text) for text in sources]
        operation = _OPERATIONS.get(one.opcode)
        if operation is not None and (found := operation(values)) is not None:
            return found
        many, compute = _NUMERIC.get(one.opcode, (0, None))
        if compute is not None and len(values) == many and all(value.known for value in values):
            result = compute(one.modifiers, *(value.threads for value in values))
            if result is not None:
                return ThreadValue(np.asarray(result, np.int64))
        if all(value.uniform for value in values):
            return self._opaque(name, all(value.firm for value in values))
        return ThreadValue(None, firm=False)


def _add(first: ThreadValue, second: ThreadValue, sign: int = 1) -> ThreadValue:
    terms = dict(first.terms)
    for name, times in second.terms.items():
        terms[name] = terms.get(name, 0) + sign * times
    terms = {name: times for name, times in terms.items() if times}
    firm = first.firm and second.firm
    if first.threads is None or second.threads is None:
        return ThreadValue(None, terms, firm)
    return ThreadValue(first.threads + sign * second.threads, terms, firm)


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
    return None if (by == 0).any() else value // by


def _left_over(modifiers: Sequence[str], value: Threads, by: Threads) -> Threads | None:
    return None if (by == 0).any() else value % by


def _selected(modifiers: Sequence[str], first: Threads, second: Threads, test: Threads) -> Threads:
    return np.where(test != 0, first, second)


_NUMERIC: dict[str, tuple[int, _Numbers]] = {
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
