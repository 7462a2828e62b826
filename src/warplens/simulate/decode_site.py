"""Decode one instruction: turn its operands into readers and writers of register slots.

Decoding happens once per entry. Immediates, symbol addresses and special registers get their own register slots, which
are filled when a batch starts, so that executing an instruction only reads slots.
"""

from __future__ import annotations

import re
import struct
from collections import ChainMap
from collections.abc import Callable, Container
from dataclasses import dataclass, field

import numpy as np

from warplens.ptx.syntax import PtxError, split_operands
from warplens.ptx.tree import Declaration, Instruction
from warplens.simulate.batch_state import Group, Reader, State, Step
from warplens.simulate.numeric import SIGNED, TYPE_BYTES, UNSIGNED, Array, dtype_of, float_in
from warplens.simulate.special_registers import SPECIAL_REGISTERS

_FAMILY = re.compile(r"(.*?)(\d+)\Z")
_ADDRESS = re.compile(r"\[\s*([\w$%.]+)\s*(?:\+\s*)?(-?\s*\w+)?\s*\]\Z")
_FLOAT_IMMEDIATE = re.compile(r"0([fd])([0-9a-fA-F]+)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class VariableLocation:
    """The location of a variable: an offset in `shared` or `local`, or an address in `global`."""

    space: str
    at: int


@dataclass
class Registers:
    """All register slots of an entry: their widths in bytes (0: predicate) and initial values."""

    widths: list[int] = field(default_factory=list)
    constants: dict[tuple[int, int], int] = field(default_factory=dict)
    specials: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    ready: int = 0

    def new(self, width: int) -> int:
        self.widths.append(width)
        return len(self.widths) - 1

    def constant(self, bits: int, width: int) -> int:
        key = (bits & ((1 << 8 * width) - 1) if width else bits, width)
        if key not in self.constants:
            self.constants[key] = self.new(width)
        return self.constants[key]

    def special(self, name: str, width: int = 4) -> int:
        if name not in self.specials:
            self.specials[name] = self.new(width)
        return self.specials[name]

    def local(self, size: int, align: int) -> int:
        start = -(-self.local_bytes // align) * align
        self.local_bytes = start + size
        return start


class NameScope:
    """The names declared in one pair of braces; registers of a family (`%r<9>`) get a slot on first use."""

    def __init__(self, registers: Registers, parent: NameScope | None = None) -> None:
        self.registers, self.parent = registers, parent
        self.slots: dict[str, int] = {}
        self.families: dict[str, tuple[int, int]] = {}
        self.places: ChainMap[str, VariableLocation] = parent.places.new_child() if parent else ChainMap()
        self.labels: ChainMap[str, int] = parent.labels.new_child() if parent else ChainMap()
        self.tables: ChainMap[str, tuple[str, ...]] = parent.tables.new_child() if parent else ChainMap()
        """The labels that each `.branchtargets` lists, by its name."""

    def declare(self, declaration: Declaration) -> None:
        width = TYPE_BYTES.get(declaration.type, 16) if declaration.type != "pred" else 0
        for variable in declaration.variables:
            if variable.count is not None:
                self.families[variable.name] = (variable.count, width)
            else:
                self.slots[variable.name] = self.registers.new(width)

    def slot(self, name: str) -> int | None:
        scope: NameScope | None = self
        family = _FAMILY.match(name)
        while scope is not None:
            if name in scope.slots:
                return scope.slots[name]
            if family and family[1] in scope.families and int(family[2]) < scope.families[family[1]][0]:
                scope.slots[name] = self.registers.new(scope.families[family[1]][1])
                return scope.slots[name]
            scope = scope.parent
        return None


class DecodeSite:
    """One instruction being decoded. `latency`, if set, returns the cycles until its results arrive."""

    def __init__(self, instruction: Instruction, scope: NameScope, function: str) -> None:
        self.instruction, self.scope, self.function = instruction, scope, function
        self.registers = scope.registers
        self.opcode, self.modifiers = instruction.opcode, instruction.modifiers
        self.operands = instruction.operands
        self.has = frozenset(instruction.modifiers)
        self.kinds = [word for word in instruction.modifiers if word in TYPE_BYTES]
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.latency: Callable[[State, Group], Array | int] | None = None

    @property
    def kind(self) -> str:
        """The type the instruction works on: its last type modifier."""
        if not self.kinds:
            raise self.unknown("has no type that the interpreter supports")
        return self.kinds[-1]

    def unknown(self, problem: str = "is not supported by the interpreter") -> PtxError:
        return self.error(f"{self.instruction.full_opcode} {problem}")

    def error(self, problem: str) -> PtxError:
        return PtxError(self.instruction.line, self.instruction.raw, problem, function=self.function)

    def word(self, known: Container[str]) -> str:
        """The first modifier that is one of the `known` ones."""
        if (found := next((word for word in self.modifiers if word in known), None)) is None:
            raise self.unknown()
        return found

    def need(self, count: int) -> tuple[str, ...]:
        if len(self.operands) < count:
            raise self.error(f"{self.opcode} needs {count} operands, has {len(self.operands)}")
        return self.operands

    def slot(self, name: str) -> int:
        found = self.scope.slot(name)
        if found is None:
            raise self.error(f"register {name} is not declared")
        return found

    def read(self, text: str, kind: str) -> Reader:
        """A function that reads operand `text` as an array of `kind`'s numpy type (bits for packed types and bf16)."""
        width = 0 if kind == "pred" else TYPE_BYTES[kind]
        if kind == "pred" and text.startswith("!"):
            inner = self.read(text[1:].strip(), kind)
            return lambda R: ~inner(R)
        slot = self._source(text, kind)
        self.reads.add(slot)
        have = self.registers.widths[slot]
        wanted = dtype_of(kind)
        if have == width:
            if wanted.kind in "ub":
                return lambda R: R[slot]
            return lambda R: R[slot].view(wanted)
        if have == 0 or width == 0 or have == 16:
            raise self.error(f"operand {text} does not have the width of .{kind}")
        bits = UNSIGNED[width]
        return lambda R: R[slot].astype(bits).view(wanted)

    def read_float(self, text: str, kind: str) -> Reader:
        """A reader of operand `text` as float values: bf16 widened to float32, packed types flattened."""
        if kind in ("f16", "f32", "f64"):
            return self.read(text, kind)
        bits = self.read(text, f"b{8 * TYPE_BYTES[kind]}")
        view = float_in(kind)
        return lambda R: view(bits(R))

    def _source(self, text: str, kind: str) -> int:
        if (found := self.scope.slot(text)) is not None:
            return found
        width = 0 if kind == "pred" else TYPE_BYTES[kind]
        if text.startswith("%") and text[1:] in SPECIAL_REGISTERS:
            return self.registers.special(text[1:], 8 if text == "%gridid" else 4)
        if (place := self.scope.places.get(text.partition("+")[0].strip())) is not None:
            offset = int(text.partition("+")[2].strip() or "0", 0)
            return self.registers.constant(place.at + offset, width)
        bits = self._immediate(text, kind)
        if bits is None:
            raise self.error(f"{text} is not a register, a variable or a number")
        return self.registers.constant(bits, width)

    def _immediate(self, text: str, kind: str) -> int | None:
        if match := _FLOAT_IMMEDIATE.match(text.lstrip("-")):
            raw = bytes.fromhex(match[2])
            value = struct.unpack(">f" if match[1] in "fF" else ">d", raw)[0]
            value = -value if text.startswith("-") else value
            if kind.endswith("64"):
                return int.from_bytes(struct.pack("<d", value), "little")
            bits = int.from_bytes(raw, "big") if match[1] in "fF" else int(np.float32(value).view(np.uint32))
            return bits ^ (1 << 31) if text.startswith("-") and match[1] in "fF" else bits
        if text == "WARP_SZ":
            return 32
        try:
            value_int = int(re.sub(r"\A(-?)0(?=[0-7]+\Z)", r"\g<1>0o", text.rstrip("uU")), 0)
        except ValueError:
            try:
                number = float(text)
            except ValueError:
                return None
            shape = {"f64": "<d", "f16": "<e"}.get(kind, "<f")
            return int.from_bytes(struct.pack(shape, number), "little")
        if kind in ("f32", "f64") and not text.lower().startswith("0x"):
            return int.from_bytes(struct.pack("<d" if kind == "f64" else "<f", float(value_int)), "little")
        return value_int

    def assign(self, text: str, kind: str, value: Reader) -> Step:
        """A step that writes `value` (any array with `kind`'s bits) to register `text`."""
        if text == "_":
            return lambda S, g: None
        slot = self.slot(text)
        self.writes.add(slot)
        convert = self._fit(slot, kind, text)

        def step(S: State, g: Group) -> None:
            R = S.R
            result = convert(value(R))
            R[slot] = result if g.write is None else np.where(g.write, result, R[slot])

        return step

    def put(self, text: str, kind: str) -> Callable[[State, Group, Array], None]:
        """Like `assign`, for values computed only for the group's lanes (all lanes if the group is full)."""
        if text == "_":
            return lambda S, g, values: None
        slot = self.slot(text)
        self.writes.add(slot)
        convert = self._fit(slot, kind, text)

        def store(S: State, g: Group, values: Array) -> None:
            values = convert(values)
            if not g.full:
                merged = S.R[slot].copy()
                merged[g.index] = values
                values = merged
            S.R[slot] = values

        return store

    def _fit(self, slot: int, kind: str, text: str) -> Callable[[Array], Array]:
        """A function that converts an array of `kind` to the register's unsigned type; sign-extends signed kinds."""
        have = self.registers.widths[slot]
        if kind == "pred":
            if have:
                raise self.error(f"{text} is not a predicate")
            return lambda values: values
        width = TYPE_BYTES[kind]
        if have == 0:
            raise self.error(f"{text} is a predicate, not a .{kind}")
        bits = UNSIGNED[have]
        if have == width:
            return lambda values: values.view(bits)
        if kind.startswith("s"):
            signed, wide = SIGNED[width], SIGNED[have]
            return lambda values: values.view(signed).astype(wide).view(bits)
        narrow = UNSIGNED[width]
        return lambda values: values.view(narrow).astype(bits)

    def vector(self, text: str) -> tuple[str, ...]:
        """The parts of `{a, b}`, or just `text`."""
        return split_operands(text[1:-1]) if text.startswith("{") else (text,)

    def address(self, text: str) -> tuple[Reader, str | None]:
        """A reader of `[base+offset]` as int64 addresses, and the space of the variable it names, if any."""
        match = _ADDRESS.match(text)
        if match is None:
            raise self.error(f"{text} is not an address that the interpreter supports")
        try:
            offset = int((match[2] or "0").replace(" ", ""), 0)
        except ValueError:
            raise self.error(f"{text} is not an address that the interpreter supports") from None
        base = match[1]
        slot = self.scope.slot(base)
        if slot is None:
            place = self.scope.places.get(base)
            at = place.at if place else self._immediate(base, "b64")
            if at is None:
                raise self.error(f"{base} is not a register or a variable")
            fixed = self.registers.constant(at + offset, 8)
            return (lambda R: R[fixed].view(np.int64)), place.space if place else None
        self.reads.add(slot)
        if self.registers.widths[slot] == 8:
            if offset:
                return (lambda R: R[slot].view(np.int64) + offset), None
            return (lambda R: R[slot].view(np.int64)), None
        return (lambda R: R[slot].astype(np.int64) + offset), None


Builder = Callable[[DecodeSite], Step]
BUILDERS: dict[str, Builder] = {}


def builds(*opcodes: str) -> Callable[[Builder], Builder]:
    """Register a function as the decoder of these opcodes."""

    def register(builder: Builder) -> Builder:
        for opcode in opcodes:
            BUILDERS[opcode] = builder
        return builder

    return register
