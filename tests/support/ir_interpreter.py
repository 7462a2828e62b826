"""Runs the LLVM IR that the weaver for AMD's GPUs writes, lane by lane, as far as the kernels of these tests need it.

Each lane walks through the kernel on its own. A store happens if it lies within the buffer, as in hardware.
The clock counts the instructions that the lane has executed, times `cycles`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_LABEL = re.compile(r"([-\w.$]+):")
_CALL = re.compile(r"call (?P<type>[\w ()]+?) @(?P<name>[\w.]+)\((?P<operands>.*)\)")
_BITS = {"i1": 1, "i16": 16, "i32": 32, "i64": 64}


@dataclass
class Machine:
    """The memory, the launch and the clocks. `place` is what the hardware register of the compute unit reads."""

    memory: bytearray
    grid: tuple[int, int, int]
    lanes: int
    base: int = 1 << 40
    cycles: int = 1
    mhz: float = 2500.0
    start: int = 123_456_789
    bits: int = 64
    place: int = 3
    registers: list[int] = field(default_factory=list)
    """The operands of s_getreg, as they were read."""

    def run(self, text: str, block: tuple[int, int, int], thread: int, arguments: list[Any]) -> None:
        """Run one lane of one wave."""
        _Lane(self, text, block, thread, arguments).run()


class _Lane:
    def __init__(self, machine: Machine, text: str, block: tuple[int, int, int], thread: int, given: list[Any]) -> None:
        self.machine, self.block, self.thread = machine, block, thread
        lines = text.splitlines()
        first = next(at for at, line in enumerate(lines) if line.startswith("define amdgpu_kernel"))
        body = lines[first + 1 : lines.index("}", first)]
        self.blocks: dict[str, list[str]] = {}
        entry = str(len(given))
        name = entry
        for line in (line.strip() for line in body):
            if found := _LABEL.match(line):
                name = found[1]
            elif line:
                self.blocks.setdefault(name, []).append(line)
        self.values: dict[str, Any] = {f"%{at}": value for at, value in enumerate(given)}
        self.name, self.before, self.executed = entry, "", 0

    def run(self) -> None:
        while self.name:
            came, self.before = self.before, self.name
            phis = {}
            for line in self.blocks[self.name]:
                self.executed += 1
                if " = phi " in line:
                    result, rest = line.split(" = phi ", 1)
                    edges = {label: value for value, label in re.findall(r"\[ (\S+), %(\S+) \]", rest)}
                    phis[result] = self.value(edges[came], rest.split()[0])
                    continue
                self.values.update(phis)
                phis = {}
                if line.startswith("br "):
                    self.branch(line)
                elif line.startswith("ret "):
                    self.name = ""
                else:
                    result, _, operation = line.rpartition(" = ") if line.startswith("%") else ("", "", line)
                    made = self.execute(operation.split(", !dbg")[0])
                    if result:
                        self.values[result] = made

    def branch(self, line: str) -> None:
        labels = re.findall(r"label %([-\w.$]+)", line)
        if len(labels) == 1:
            self.name = labels[0]
        else:
            condition = line.split()[2].rstrip(",")
            self.name = labels[0] if self.value(condition, "i1") else labels[1]

    def value(self, text: str, kind: str) -> Any:
        text = text.rstrip(",")
        if text.startswith("%"):
            return self.values[text]
        if text == "poison":
            return None
        if kind in _BITS:
            return {"true": 1, "false": 0}.get(text) if text in ("true", "false") else int(text) & _mask(kind)
        return float(text)

    def execute(self, line: str) -> Any:
        words = line.replace("nuw ", "").replace("nsw ", "").split()
        operation = words[0]
        if "call " in line:
            return self.call(line)
        if operation in _ARITHMETIC:
            kind = words[1]
            a, b = self.value(words[2], kind), self.value(words[3], kind)
            return _ARITHMETIC[operation](a, b) & _mask(kind)
        if operation == "icmp":
            kind = words[2]
            a, b = self.value(words[3], kind), self.value(words[4], kind)
            if words[1].startswith("s"):
                a, b = _signed(a, kind), _signed(b, kind)
            return int(_COMPARE[words[1].lstrip("us")](a, b))
        if operation == "select":
            return self.value(words[4 if self.value(words[2], "i1") else 6], words[3])
        if operation in ("zext", "trunc", "ptrtoint", "inttoptr"):
            at = words.index("to")
            return self.value(words[at - 1], words[1]) & _mask(words[at + 1])
        if operation == "sext":
            return _signed(self.value(words[2], words[1]), words[1]) & _mask(words[4])
        if operation == "fpext":
            return self.value(words[2], words[1])
        if operation == "bitcast":
            if words[1] == "double":
                return struct.unpack("<Q", struct.pack("<d", self.value(words[2], "double")))[0]
            wide = self.value(words[4], "")
            return [half for word in wide for half in (word & 0xFFFFFFFF, word >> 32)]
        if operation == "insertelement":
            kind, vector, value, at = re.match(r"insertelement <\d x (\w+)> (\S+), \w+ (\S+), i64 (\d)", line).groups()  # type: ignore[union-attr]
            count = int(line[line.index("<") + 1])
            made = list(self.value(vector, "") or [None] * count)
            made[int(at)] = self.value(value, kind)
            return made
        if operation == "getelementptr":
            return (*self.value(words[4], ""), int(words[6]))
        if operation == "load":
            return self.machine.grid[len(self.value(words[4], "")) - 1]
        assert operation == "freeze", line
        return None

    def call(self, line: str) -> Any:
        found = _CALL.search(line)
        assert found is not None, line
        name = found["name"].removeprefix("llvm.").removeprefix("amdgcn.")
        operands = [one.split() for one in re.split(r", (?=[<\w])", found["operands"])] if found["operands"] else []
        machine = self.machine
        given = [self.value(one[-1], one[0]) for one in operands]
        if name == "readcyclecounter":
            return (machine.start + self.executed * machine.cycles) % (1 << machine.bits)
        if name == "readsteadycounter":
            return int((machine.start + self.executed * machine.cycles) / machine.mhz * 100)
        if name.startswith("raw.ptr.buffer.store"):
            self.store(*given[:3])
            return None
        if name == "s.getreg":
            machine.registers.append(given[0])
            return machine.place
        if name == "make.buffer.rsrc.p8.p1":
            return given[0], given[2]
        return {
            "sched.barrier": lambda: None,
            "workitem.id.x": lambda: self.thread,
            "readfirstlane.i32": lambda: given[0] - given[0] % machine.lanes,
            **{f"workgroup.id.{axis}": lambda at=at: self.block[at] for at, axis in enumerate("xyz")},
            "implicitarg.ptr": lambda: (0,),
            "umin.i32": lambda: min(given),
        }[name]()

    def store(self, words: list[int], buffer: tuple[int, int], offset: int) -> None:
        address, size = buffer
        if offset + 4 * len(words) <= size:
            at = address - self.machine.base + offset
            assert 0 <= at <= len(self.machine.memory) - 4 * len(words)
            self.machine.memory[at : at + 4 * len(words)] = np.array(words, "<u4").tobytes()


_ARITHMETIC = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b,
    "lshr": lambda a, b: a >> b,
}
_COMPARE = {"eq": lambda a, b: a == b, "ge": lambda a, b: a >= b, "le": lambda a, b: a <= b, "lt": lambda a, b: a < b}


def _mask(kind: str) -> int:
    return (1 << _BITS.get(kind.rstrip(","), 64)) - 1


def _signed(value: int, kind: str) -> int:
    bits = _BITS[kind]
    return value - (1 << bits) if value >> (bits - 1) else value
