"""A function as a sequence of units and basic blocks, which the rules operate on.

Marks are placed in gaps: gap `g` is right before unit `g`. Labels are units too, so the gap before a label is only on
the fall-through edge, and the gap after it is on every path into the block.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from warplens.auto.ptx.extremes import Extremes
from warplens.auto.ptx.instruction_classes import HEAVY, Kind, class_of
from warplens.ptx.labels import JUMPS, TERMINATORS, jump_targets, table_labels
from warplens.ptx.source_lines import SourceLines
from warplens.ptx.syntax import SCALAR_BYTES
from warplens.ptx.tree import Comment, Declaration, Directive, Function, Instruction, Label, Node, Scope, walk
from warplens.weave.mark_comments import PREFIX

LEAVES = frozenset({"ret", "exit"})
_STOPS = frozenset({*LEAVES, "brx"})
REGISTER = re.compile(r"%[\w$]+")


@dataclass(slots=True, eq=False)
class Unit:
    """An instruction, a label, or a call sequence, which must not contain marks."""

    at: int
    holder: list[Node]
    node: Instruction | Label | Scope
    location: tuple[str, int] | None
    number: int
    """The number of instructions before it."""
    instruction: Instruction | None = None
    opcode: str = ""
    kind: Kind | None = None
    weight: int = 0
    """How much work it is for its source line."""
    ends_block: bool = False
    block: int = -1
    calls: tuple[tuple[str, int], ...] = ()
    """The lines of the calls that it was inlined by, innermost first."""

    def registers(self) -> list[str]:
        """All registers that it reads or writes; some are listed twice."""
        node = self.node
        if isinstance(node, Scope):
            return [name for part in walk(node.body) for name in REGISTER.findall(part.raw)]
        return REGISTER.findall(node.raw)


@dataclass
class UnitBlock:
    """A basic block: units [start, stop), with the numbers of its successors and predecessors."""

    start: int
    stop: int
    after: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)


class FunctionUnits:
    """The units and blocks of one function."""

    def __init__(self, function: Function, files: dict[str, str]) -> None:
        self.function = function
        self.units: list[Unit] = []
        self.cuts: set[int] = set()
        """Gaps with hand-written marks, which no region found by a rule may cross."""
        self.marks: dict[int, list[tuple[str, str]]] = {}
        """By gap, the marks in it: the letter, and the words behind it, of which the first is the encoded name."""
        self.asked: list[tuple[int, str]] = []
        """The hand-written marks that leave it to the rules to find their barrier: gap and words."""
        self._number = 0
        self._location: tuple[str, int] | None = None
        self._calls: tuple[tuple[str, int], ...] = ()
        self._tables = table_labels(function.body or [])
        self._labels: dict[int, int] = {}
        """The units of labels by the `id` of the label."""
        self._ending: list[Unit] = []
        """The units that end a block."""
        self._collect(function.body or [], SourceLines(files))
        leads = jump_targets(function)
        self.jumps = {
            unit.at: [self._labels[id(label)] for label in leads[id(unit.node)] if id(label) in self._labels]
            for unit in self._ending
            if unit.opcode in JUMPS
        }
        self.targets = {label for labels in self.jumps.values() for label in labels}
        self._count_exits()
        self.blocks = list(self._split())
        self._connect()
        self.sizes = _sizes(function)

    def _collect(self, body: list[Node], locations: SourceLines) -> None:
        units = self.units
        for node in body:
            at = len(units)
            if isinstance(node, Instruction):
                opcode = node.opcode
                kind, weight = class_of(opcode, node.modifiers)
                ends = opcode in TERMINATORS
                unit = Unit(at, body, node, self._location, self._number, node, opcode, kind, weight, ends)
                unit.calls = self._calls
                units.append(unit)
                self._number += 1
                if ends:
                    self._ending.append(unit)
            elif isinstance(node, Label):
                if id(node) not in self._tables:
                    self._labels[id(node)] = at
                    units.append(Unit(at, body, node, self._location, self._number))
            elif isinstance(node, Comment):
                content = node.content
                if content.startswith(PREFIX):
                    self.cuts.add(at)
                    letter, _, words = content[len(PREFIX) :].partition(" ")
                    self.marks.setdefault(at, []).append((letter, words))
                    if "next:" in words:
                        self.asked.append((at, words))
            elif isinstance(node, Directive):
                if node.name == "loc":
                    lines = locations.stack(node.arguments)
                    self._location, self._calls = (lines[0], lines[1:]) if lines else (None, ())
            elif isinstance(node, Scope):
                if _is_call(node):
                    unit = Unit(at, body, node, self._location, self._number, opcode="call", weight=HEAVY)
                    unit.calls = self._calls
                    units.append(unit)
                    self._number += 1
                else:
                    self._collect(node.body, locations)

    def _split(self) -> Iterator[UnitBlock]:
        start = 0
        for stop in sorted({*self.targets, *(unit.at + 1 for unit in self._ending), len(self.units)}):
            if stop > start:
                yield UnitBlock(start, stop)
                start = stop

    def _connect(self) -> None:
        units = self.units
        for number, block in enumerate(self.blocks):
            for unit in units[block.start : block.stop]:
                unit.block = number
        for number, block in enumerate(self.blocks):
            last = units[block.stop - 1]
            after = {units[target].block for target in self.jumps.get(last.at, ())}
            if self.falls_through(last) and number + 1 < len(self.blocks):
                after.add(number + 1)
            block.after = sorted(after)
            for follower in block.after:
                self.blocks[follower].before.append(number)

    @staticmethod
    def falls_through(unit: Unit) -> bool:
        return not unit.ends_block or (unit.instruction is not None and unit.instruction.predicate is not None)

    def head(self, block: UnitBlock) -> int:
        """The gap after a block's labels."""
        places = range(block.start, block.stop)
        return next((at for at in places if not isinstance(self.units[at].node, Label)), block.stop)

    def tail(self, block: UnitBlock) -> int:
        """The gap before the instruction that ends a block."""
        return block.stop - self.units[block.stop - 1].ends_block

    def on_edge(self, source: int, target: int, among: set[int]) -> int | None:
        """A gap on the edge from block `source` to `target` that lies only on edges out of the blocks `among`."""
        before, after = self.blocks[source], self.blocks[target]
        if all(number in among for number in after.before):
            return self.head(after)
        if before.after == [target] and self.units[before.stop - 1].opcode not in LEAVES:
            return self.tail(before)
        jumps = self.jumps.get(before.stop - 1, ())
        falls = target == source + 1 and not any(after.start <= label < self.head(after) for label in jumps)
        return after.start if falls else None

    def enclosed(self, begin: int, end: int, leaving: bool = False) -> tuple[int, int] | None:
        """The gaps where a region over units [begin, end) begins and ends.

        None unless control enters only at the first unit and leaves only after the last one or, with `leaving`, by an
        unconditional return. Labels at either end are included or excluded as needed.
        """
        while begin < end and isinstance(self.units[begin].node, Label) and not self._from(begin, begin, end):
            begin += 1
        while end < len(self.units) and isinstance(self.units[end].node, Label) and self._from(end, begin, end):
            end += 1
        if begin >= end or not self.falls_through(self.units[end - 1]):
            return None
        stops = self._conditional_stops if leaving else self._stops
        if bisect.bisect_left(stops, begin) < bisect.bisect_left(stops, end):
            return None
        # Neither the jumps inside nor those into the region may cross its ends.
        inside = self._targets_of.within(begin, end, begin, end) and self._sources_of.within(begin, end, begin, end)
        return (begin, end) if inside else None

    def returns(self, begin: int, end: int) -> list[int]:
        """The units in [begin, end) that leave the function."""
        return self._returns[bisect.bisect_left(self._returns, begin) : bisect.bisect_left(self._returns, end)]

    def _count_exits(self) -> None:
        """Prepare what `enclosed` asks about ranges of units."""
        pairs = [(at, target) for at, targets in self.jumps.items() for target in targets]
        self._targets_of = Extremes(pairs)
        self._sources_of = Extremes((target, at) for at, target in pairs)
        self._jumps_to: dict[int, list[int]] = {}
        for at, target in sorted(pairs):
            self._jumps_to.setdefault(target, []).append(at)
        self._returns = [unit.at for unit in self._ending if unit.opcode in LEAVES]
        stops = [unit for unit in self._ending if unit.opcode in _STOPS]
        self._stops = [unit.at for unit in stops]
        self._conditional_stops = [u.at for u in stops if u.opcode == "brx" or self.falls_through(u)]

    def _from(self, label: int, begin: int, end: int) -> bool:
        """Whether anything in [begin, end) jumps to `label`."""
        sources = self._jumps_to.get(label, [])
        index = bisect.bisect_left(sources, begin)
        return index < len(sources) and sources[index] < end

    def inside(self) -> set[int]:
        """The units that are inside a region of the marks already present."""
        opened = defaultdict[int, int](int)
        """By gap, the number of regions that its marks begin minus the number that they end."""
        for gap, marks in self.marks.items():
            opened[gap] = sum({"B": 1, "E": -1}.get(letter, 0) for letter, _ in marks)
        found: set[int] = set()
        depths, todo = {0: opened[0]}, [0] if self.blocks else []
        while todo:
            number = todo.pop()
            block, depth = self.blocks[number], depths[number]
            for at in range(block.start, block.stop):
                depth += opened[at] if at > block.start else 0
                if depth > 0:
                    found.add(at)
            for follower in [one for one in block.after if one not in depths]:
                # Marks before the next block's label are only executed when falling through to it.
                falls = follower == number + 1 and self.falls_through(self.units[block.stop - 1])
                depths[follower] = depth + (opened[block.stop] if falls else 0)
                todo.append(follower)
        return found

    @functools.cached_property
    def lines(self) -> dict[str, set[int]]:
        """The source lines that have code, by file."""
        found: dict[str, set[int]] = {}
        last = None
        for unit in self.units:
            if unit.location is not last and unit.location is not None:
                found.setdefault(unit.location[0], set()).add(unit.location[1])
            last = unit.location
        return found

    def size_of(self, register: str) -> int:
        """The size of a register in bytes; 0 if its declaration is ambiguous."""
        return self.sizes.get(register) or self.sizes.get(register.rstrip("0123456789") + "<", 0)


def _is_call(scope: Scope) -> bool:
    """Whether it is a call sequence: the stores of the parameters, the call, and the loads of its result."""
    return any(
        (isinstance(node, Declaration) and node.space == "param")
        or (isinstance(node, Instruction) and node.opcode == "call")
        for node in walk(scope.body)
    )


def _sizes(function: Function) -> dict[str, int]:
    """Register sizes in bytes by name, families as `%r<`; names that scopes declare differently are left out."""
    found: dict[str, set[int]] = {}
    for node in function.walk():
        if isinstance(node, Declaration) and node.space == "reg":
            for variable in node.variables:
                key = variable.name + "<" if variable.count is not None else variable.name
                found.setdefault(key, set()).add(SCALAR_BYTES.get(node.type, 0))
    return {name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1}
