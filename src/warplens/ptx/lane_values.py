"""What the registers of a function hold in each lane of a warp, as far as the text tells.

Registers are followed through a function in the representative first warp of a block. Values that are the same in all
lanes but not known (parameters, block numbers, loaded values) stay unknown; what is tracked is how lanes differ. Where
a bitwise operation meets an unknown value, that value counts as a multiple of a large power of two, as the begin of a
tile is. Lanes that are multiplied by an unknown value, such as a row's length, count as far apart where they differ. So
addresses of lanes are known up to a common offset, which decides how many sectors or banks they touch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from warplens.ptx.operands import names, written_by
from warplens.ptx.tree import Function, Instruction

LANES = 32
Lanes = npt.NDArray[np.int64]
_ZERO: Lanes = np.zeros(LANES, np.int64)
_MANY = 10_007
_ROUNDS = 6
_REGISTER = re.compile(r"%[A-Za-z_$][\w$]*")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?")
_OCTAL = re.compile(r"-?0[0-7]+")
UNIFORM = re.compile(r"%(?:ctaid|nctaid|ntid|nwarpid|warpid|clusterid|cluster_|gridid|smid|nsmid|dynamic_smem)")


@dataclass(frozen=True)
class WarpPlace:
    """Which warp of a block is followed: its number, and how many threads a row of the block has, None for a block of
    one row."""

    warp: int = 0
    width: int | None = None

    def thread(self, axis: str) -> Lanes:
        """The thread index of each lane along x, y or z."""
        number = LANES * self.warp + np.arange(LANES)
        if self.width is None:
            return number if axis == "x" else _ZERO
        return number % self.width if axis == "x" else number // self.width if axis == "y" else _ZERO


FIRST_WARP = WarpPlace()


@dataclass(frozen=True, eq=False)
class LaneValue:
    """`lanes` is what each lane has: exactly, or on top of an unknown value that all lanes share (not `exact`).

    Lanes with other numbers in `rows` are far apart in addition: what they differ by is known only at run time. `lanes`
    is None where lanes differ in a way that is not known at all.
    """

    lanes: Lanes | None
    exact: bool = False
    rows: Lanes = field(default_factory=lambda: _ZERO)

    @cached_property
    def uniform(self) -> bool:
        if self.lanes is None or self.rows.any():
            return False
        return bool((self.lanes == self.lanes[0]).all())

    @cached_property
    def plain(self) -> bool:
        """Whether lanes differ by known numbers only."""
        return self.lanes is not None and not self.rows.any()

    @cached_property
    def constant(self) -> bool:
        return self.exact and self.uniform

    def same(self, other: LaneValue) -> bool:
        if self is other:
            return True
        if (self.lanes is None) != (other.lanes is None) or self.exact != other.exact:
            return False
        if self.lanes is None or other.lanes is None:
            return True
        return bool((self.lanes == other.lanes).all() and (self.rows == other.rows).all())


COMPARISONS: dict[str, Callable[..., Lanes]] = {
    **{"lt": np.less, "lo": np.less, "le": np.less_equal, "ls": np.less_equal, "eq": np.equal, "ne": np.not_equal},
    **{"gt": np.greater, "hi": np.greater, "ge": np.greater_equal, "hs": np.greater_equal},
}
"""What `setp` tests of two numbers."""


SHARED = LaneValue(_ZERO)
"""The same in all lanes, and not known."""
VARYING = LaneValue(None)


def signed(number: int) -> int:
    """The number that 64 bits of a register stand for."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def parsed_number(text: str) -> int | None:
    """The number that an operand is; 0 for a damaged one, None for anything else."""
    if not _NUMBER.fullmatch(text):
        return None
    digits = text.rstrip("uU")
    try:
        return signed(int(digits, 8 if _OCTAL.fullmatch(digits) else 0))
    except ValueError:
        return 0


def exact(values: Lanes | int) -> LaneValue:
    return LaneValue(np.broadcast_to(np.asarray(values, np.int64), LANES).copy(), exact=True)


def offset(values: Lanes, rows: Lanes | None = None) -> LaneValue:
    """An unknown value that all lanes share, plus these."""
    return LaneValue(values, rows=_ZERO if rows is None else rows - rows[0])


def join(first: LaneValue, second: LaneValue) -> LaneValue:
    """What a register holds that may hold either of two values."""
    if first.same(second):
        return first
    if first.lanes is None or second.lanes is None:
        return VARYING
    # A pointer that moves on in a loop: what lanes share is not known any more, how they differ is.
    apart = offset(first.lanes - first.lanes[0], first.rows)
    other = offset(second.lanes - second.lanes[0], second.rows)
    return apart if apart.same(other) else VARYING


@dataclass(eq=False, slots=True)
class _Step:
    """An instruction that writes registers, and when it was last followed."""

    instruction: Instruction
    targets: set[str]
    done: int = 0
    _registers: set[str] | None = None

    @property
    def registers(self) -> set[str]:
        """The registers that it names."""
        if self._registers is None:
            self._registers = names(self.instruction.arguments)
        return self._registers


def _needed(function: Function, operands: Iterable[str]) -> list[_Step]:
    """The steps that the values of `operands` depend on, in the order of the text."""
    waiting = {name for operand in operands for name in names(operand)}
    if not waiting:
        return []
    instructions = list(function.instructions())
    writers: defaultdict[str, list[int]] = defaultdict(list)
    for number, instruction in enumerate(instructions):
        first = instruction.arguments.partition(",")[0].strip()
        for target in (first,) if _REGISTER.fullmatch(first) else written_by(instruction):
            writers[target].append(number)
    found: dict[int, _Step] = {}
    known = set(waiting)
    while waiting:
        for number in writers.get(waiting.pop(), ()):
            if number not in found:
                found[number] = step = _Step(instructions[number], written_by(instructions[number]))
                waiting |= step.registers - known
                known |= step.registers
    return [found[number] for number in sorted(found)]


def _not_written(text: str, place: WarpPlace) -> LaneValue:
    """The value of a number, a special register, or a register that no instruction writes."""
    if (number := parsed_number(text)) is not None:
        return exact(number)
    if text == "%laneid":
        return exact(np.arange(LANES))
    if text in ("%tid.x", "%tid.y", "%tid.z"):
        return exact(place.thread(text[-1]))
    return SHARED if UNIFORM.match(text) or not text.startswith("%") else VARYING


class LaneValues:
    """The values of registers of a function; one that is written often has what its values have in common.

    Only the registers that `operands` depend on are followed: addresses need few of a kernel's instructions.
    """

    def __init__(
        self, function: Function, operands: Iterable[str] | None = None, place: WarpPlace = FIRST_WARP
    ) -> None:
        self._place = place
        self._known: dict[str, LaneValue] = {}
        self._immediates: dict[str, LaneValue] = {}
        self._kept: dict[tuple[bytes, bool, bytes], LaneValue] = {}
        self._computed: dict[tuple[str | int, ...], LaneValue] = {}
        if operands is None:
            self._run([_Step(one, targets) for one in function.instructions() if (targets := written_by(one))])
        else:
            self._run(_needed(function, operands))

    def _run(self, steps: list[_Step]) -> None:
        """Follow the steps until nothing changes. A step is repeated only if a register that it names has changed."""
        changed_at: dict[str, int] = {}
        now = 0
        for _ in range(_ROUNDS):
            before = now
            for step in steps:
                if step.done and all(changed_at.get(name, 0) <= step.done for name in step.registers):
                    continue
                now += 1
                for target in self._follow(step):
                    changed_at[target] = now
                step.done = now
            if all(at <= before for at in changed_at.values()):
                break

    def of(self, operand: str) -> LaneValue:
        """The value of a register, a number or a special register."""
        text = operand.strip()
        if text in self._known:
            return self._known[text]
        if text not in self._immediates:
            self._immediates[text] = self._one(_not_written(text, self._place))
        return self._immediates[text]

    def address(self, operand: str) -> LaneValue:
        """The address of a memory operand such as `[%rd1+16]`."""
        base, _, more = operand.strip().strip("[]").partition("+")
        found = self.of(base)
        if found.lanes is None:
            return found
        return self._apply("add", _add, [found, self.of(more if _NUMBER.fullmatch(more.strip()) else "0")])

    def _one(self, value: LaneValue) -> LaneValue:
        """One object for equal values, so that results can be looked up by their operands."""
        if value.lanes is None:
            return VARYING
        return self._kept.setdefault((value.lanes.tobytes(), value.exact, value.rows.tobytes()), value)

    def _apply(self, name: str, operation: Callable[[list[LaneValue]], LaneValue], on: list[LaneValue]) -> LaneValue:
        key: tuple[str | int, ...] = (name, *map(id, on))
        if key not in self._computed:
            self._computed[key] = self._one(operation(on))
        return self._computed[key]

    def _follow(self, step: _Step) -> list[str]:
        """The registers whose values it changed."""
        value = self._one(self.result(step.instruction))
        changed = []
        for target in step.targets:
            known = self._known.get(target)
            new = value if known is None else self._apply("join", _select, [known, value])
            if known is not new:
                self._known[target] = new
                changed.append(target)
        return changed

    def result(self, instruction: Instruction) -> LaneValue:
        """What an instruction writes."""
        operands = instruction.operands
        if len(operands) < _OPERANDS.get(instruction.opcode, 1):
            return VARYING
        if instruction.opcode == "ld":
            if "param" in instruction.modifiers:
                return SHARED
            return SHARED if self.address(operands[-1]).uniform else VARYING
        if instruction.opcode == "shfl":
            given, lane = self.of(operands[1]), self.of(operands[2])
            if "idx" not in instruction.modifiers or not lane.constant or lane.lanes is None:
                return VARYING
            if not given.exact or given.lanes is None:
                return SHARED
            return exact(int(given.lanes[int(lane.lanes[0]) % LANES]))
        if instruction.opcode == "elect":
            return exact((np.arange(LANES) == 0).astype(np.int64))
        if instruction.opcode == "setp":
            return self._compared(instruction)
        # A register that is not followed yet comes from a later round of a loop.
        sources = [self._source(text) for text in operands[1:]]
        known = [value for value in sources if value is not None]
        if len(known) < len(sources):
            if instruction.opcode not in ("add", "sub", "mov", "selp", "mad"):
                return VARYING if any(not value.uniform for value in known) else SHARED
            known = [SHARED if value is None else value for value in sources]
        operation = _OPERATIONS.get(instruction.opcode)
        if operation is not None and len(operands) == _OPERANDS[instruction.opcode]:
            return self._apply(instruction.opcode, operation, known)
        return SHARED if known and all(value.uniform for value in known) else VARYING

    def _compared(self, instruction: Instruction) -> LaneValue:
        """1 in lanes where a comparison of known numbers holds, else 0."""
        compare = next((COMPARISONS[name] for name in instruction.modifiers if name in COMPARISONS), None)
        sides = [self.of(text) for text in instruction.operands[1:]]
        if compare is None or len(sides) != 2 or not all(side.exact for side in sides):
            return SHARED if sides and all(side.uniform for side in sides) else VARYING
        return exact(compare(sides[0].lanes, sides[1].lanes).astype(np.int64))

    def _source(self, text: str) -> LaneValue | None:
        name = text.strip()
        is_register = name.startswith("%") and "." not in name and name not in ("%laneid", "%warpid", "%smid", "%nsmid")
        if is_register and name not in self._known and not UNIFORM.match(name):
            return None
        return self.of(name)


def _add(values: list[LaneValue], sign: int = 1) -> LaneValue:
    first, second = values[0], values[1]
    if first.lanes is None or second.lanes is None:
        return VARYING
    total = first.lanes + sign * second.lanes
    if first.exact and second.exact:
        return exact(total)
    # Two unknown distances are mostly not the same, so that rows differ where either does.
    both = first.rows.any() and second.rows.any()
    return offset(total, first.rows + (_MANY if both else 1) * second.rows)


def _multiply(values: list[LaneValue]) -> LaneValue:
    first, second = values[0], values[1]
    if first.uniform and second.uniform and not (first.exact and second.exact):
        return SHARED
    for one, factor in ((first, second), (second, first)):
        if factor.constant and factor.lanes is not None:
            if one.lanes is None:
                return one
            product = one.lanes * factor.lanes
            return exact(product) if one.exact else offset(product, one.rows if factor.lanes[0] else _ZERO)
    if first.uniform or second.uniform:
        moving = second if first.uniform else first
        return VARYING if moving.lanes is None else offset(_ZERO, _MANY * moving.rows + moving.lanes)
    return VARYING


def _multiply_add(values: list[LaneValue]) -> LaneValue:
    return _add([_multiply(values[:2]), values[2]])


def _shift_left(values: list[LaneValue]) -> LaneValue:
    by = values[1]
    if by.constant and by.lanes is not None:
        return _multiply([values[0], exact(np.int64(1) << (by.lanes & 63))])
    return SHARED if values[0].uniform and by.uniform else VARYING


def _bitwise(apply: Callable[..., Lanes], known: int = 0) -> Callable[[list[LaneValue]], LaneValue]:
    """An operation on bits; an unknown value that lanes share counts as zero in the bits that lanes differ in.

    At least `known` of the values must be known exactly.
    """

    def operation(values: list[LaneValue]) -> LaneValue:
        if values and all(value.uniform for value in values) and not all(value.exact for value in values):
            return SHARED
        if not all(value.plain for value in values) or sum(value.exact for value in values) < min(known, len(values)):
            return VARYING
        lanes = [value.lanes for value in values]
        result = np.asarray(apply(*lanes), np.int64)
        return exact(result) if all(value.exact for value in values) else offset(result)

    return operation


def _clamped(apply: Callable[..., Lanes]) -> Callable[[list[LaneValue]], LaneValue]:
    """The smaller or larger of two values. A bound that all lanes share, as the edge of an image, leaves lanes as far
    apart as they are, or brings those beyond it to one place."""
    known = _bitwise(apply, 2)

    def operation(values: list[LaneValue]) -> LaneValue:
        moving = [value for value in values if not value.uniform]
        if len(values) == 2 and len(moving) == 1 and not all(value.exact for value in values):
            return moving[0] if moving[0].lanes is None else offset(moving[0].lanes, moving[0].rows)
        return known(values)

    return operation


def _extract(value: Lanes, start: Lanes, length: Lanes) -> Lanes:
    return np.asarray((value >> (start & 63)) & ((np.int64(1) << np.minimum(length, 62)) - 1))


def _insert(low: Lanes, high: Lanes, start: Lanes, length: Lanes) -> Lanes:
    mask = ((np.int64(1) << np.minimum(length, 62)) - 1) << (start & 63)
    return np.asarray((high & ~mask) | ((low << (start & 63)) & mask))


def _divide(value: Lanes, by: Lanes) -> Lanes:
    return np.where(by == 0, 0, value // np.where(by == 0, 1, by))


def _remainder(value: Lanes, by: Lanes) -> Lanes:
    return np.where(by == 0, value, value % np.where(by == 0, 1, by))


def _select(values: list[LaneValue]) -> LaneValue:
    return join(values[0], values[1])


_OPERANDS = {
    **dict.fromkeys(("ld", "elect", "mov", "cvt", "cvta", "not", "neg"), 2),
    **dict.fromkeys(("shfl", "setp", "add", "sub", "mul", "shl", "shr", "and", "or", "xor", "min", "max"), 3),
    **{"div": 3, "rem": 3, "mad": 4, "bfe": 4, "selp": 4, "bfi": 5},
}
"""Operands of an instruction, its destination included. One with fewer is damaged; forms with more, as the minimum of
three values or a conversion of two, are not followed."""
_OPERATIONS: dict[str, Callable[[list[LaneValue]], LaneValue]] = {
    "mov": lambda values: values[0],
    "cvt": lambda values: values[0],
    "cvta": lambda values: values[0],
    "add": _add,
    "sub": lambda values: _add(values, -1),
    "mul": _multiply,
    "mad": _multiply_add,
    "shl": _shift_left,
    "shr": _bitwise(lambda value, by: value >> (by & 63), 1),
    "and": _bitwise(np.bitwise_and, 1),
    "or": _bitwise(np.bitwise_or),
    "xor": _bitwise(np.bitwise_xor),
    "not": _bitwise(np.invert),
    "neg": _bitwise(np.negative),
    "min": _clamped(np.minimum),
    "max": _clamped(np.maximum),
    "bfe": _bitwise(_extract, 2),
    "bfi": _bitwise(_insert, 2),
    "div": _bitwise(_divide, 1),
    "rem": _bitwise(_remainder, 1),
    "selp": _select,
}
