"""Marks that record which barrier a warp waits at or arrives at, so that decoding can tell who waited for whom.

The record of a wait is made right before the wait, inside its region, so that storing it costs nothing while the warp
waits anyway. A test of a barrier that is not in a loop may fail: its record is made behind it, and counts only if it
succeeded. The record of an arrival is made before it. Copies of one block of code that complete on the same barrier
need one record, that of the last.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

from warplens.auto.ptx.loop_regions import Loop, entry_gaps, natural_loops, spins
from warplens.auto.ptx.units import FunctionUnits, Unit
from warplens.auto.rules import Auto, region_name
from warplens.ptx.barrier_instructions import BarrierUse, barrier_use
from warplens.ptx.edits import Edits
from warplens.ptx.labels import end_with_return
from warplens.ptx.operands import RegisterWriters, written_by
from warplens.ptx.symbols import plain_name
from warplens.ptx.tree import Comment, Node, Raw, Scope, parse
from warplens.record.barrier_words import AFTER, MAX_EXTRA, Operation
from warplens.weave.barrier_operands import NO_OPERAND, BarrierOperands
from warplens.weave.mark_comments import mark_text

_WAIT_REGION = re.compile(r"(?:\w+ )?wait\b")
_BARRIER_REGION = re.compile(r"(?:cluster )?barrier\b")
_MBARRIERS = re.compile(r"\bmbarrier\.(?!init|inval)")
_NAMED_BARRIERS = re.compile(r"\bbar(?:rier)?\.(?!warp)")
_HAS_BARRIERS = re.compile(r"\bmbarrier\.|\bbarrier\.cluster\.|// @warplens B (?:cluster%20)?barrier\b")
_COPIES = ("copy", "multicast")
_ARRIVALS = ("arrive", "remote_arrive", *_COPIES)
_NEXT_BARRIER = " next: "
_SKIPPED = (Operation.ARRIVE, Operation.REMOTE_ARRIVE, Operation.COPY, Operation.MULTICAST, Operation.NAMED_ARRIVE)
MOST = 256
"""The maximum number of barrier marks per kernel."""


@dataclass(frozen=True)
class _Site:
    """One barrier mark: the gap or unit where it goes, its region and its operands."""

    at: int
    behind: bool
    region: str
    operands: BarrierOperands
    unit: Unit


def has_barriers(text: str, auto: Auto) -> bool:
    """Whether a module has instructions that barrier marks are for."""
    return bool(_MBARRIERS.search(text) or (auto.wants_block_barriers and _NAMED_BARRIERS.search(text)))


def mark_barriers(text: str, *, automatic: bool = True, of_blocks: bool = True) -> str:
    """Add barrier marks to every marked kernel of `text`; its regions are marked already.

    Without `automatic`, only find the barriers of hand-written marks that name none. Without `of_blocks`, leave out
    those of the whole block.
    """
    if not (_HAS_BARRIERS.search(text) if automatic else _NEXT_BARRIER in text):
        return text
    module = parse(text)
    files, added = module.files, 0
    for function in module.entries:
        end_with_return(function)
        code = FunctionUnits(function, files)
        if code.marks:
            added += mark_function(code, natural_loops(code), automatic=automatic, of_blocks=of_blocks)
    return module.text() if added else text


def mark_function(code: FunctionUnits, loops: list[Loop], *, automatic: bool = True, of_blocks: bool = True) -> int:
    """Add barrier marks to one function; returns how many places changed."""
    finder = _Finder(code, loops, of_blocks)
    by_hand, named = finder.by_hand()
    found = (site for site in finder.find() if site.unit.at not in named) if automatic else ()
    sites = [*by_hand, *itertools.islice(found, MOST)]
    edits = Edits()
    comments = _comments(code.function.body or []) if code.asked else ()
    asking = [(body, node) for body, node in comments if _NEXT_BARRIER in node.raw]
    for body, node in asking:
        edits.remove(body, node)
    for number, site in enumerate(sites):
        unit = code.units[site.at]
        if site.behind:
            edits.after(unit.holder, unit.node, _raw([_mark(site)]))
        elif _is_skipped(site):
            label = f"$wl_absent_{number}"
            edits.before(unit.holder, unit.node, _raw([_unless(site.operands.guard, label), _mark(site)]))
            edits.after(unit.holder, unit.node, _raw([f"{label}:"]))
        else:
            edits.before(unit.holder, unit.node, _raw([_mark(site)]))
    edits.apply()
    return len(sites) + len(asking)


def _raw(lines: list[str]) -> Raw:
    return Raw.of("\n".join(lines) + "\n")


def _is_skipped(site: _Site) -> bool:
    """Whether warps that do not arrive jump over the arrival and its record, so that it costs them nothing. The record
    is stored behind the arrival, which it does not delay."""
    return site.operands.operation in _SKIPPED and site.operands.guard != NO_OPERAND and not site.behind


def _unless(guard: str, label: str) -> str:
    stays = guard.removeprefix("!") if guard.startswith("!") else f"!{guard}"
    return f"\t@{stays} bra {label};"


def _mark(site: _Site) -> str:
    operands = replace(site.operands, guard=NO_OPERAND) if _is_skipped(site) else site.operands
    return "\t// " + mark_text("S", site.region, *operands.words())


def _comments(body: list[Node]) -> Iterator[tuple[list[Node], Comment]]:
    for node in body:
        if isinstance(node, Comment):
            yield body, node
        elif isinstance(node, Scope):
            yield from _comments(node.body)


class _Finder:
    """Finds the barrier marks of one function."""

    def __init__(self, code: FunctionUnits, loops: list[Loop], of_blocks: bool) -> None:
        self.code, self.of_blocks = code, of_blocks
        self.kernel = plain_name(code.function.name)
        self.uses = {
            unit.at: (unit, use)
            for unit in code.units
            if unit.instruction is not None and (use := barrier_use(unit.instruction)) is not None
        }
        """By place, the units that use a barrier."""
        self.open = open_regions(code, self.uses) if self.uses else {}
        self.writers = RegisterWriters([unit.instruction for unit in code.units if unit.instruction is not None])
        self.spinning = [loop for loop, _ in spins(code, loops)]

    def by_hand(self) -> tuple[list[_Site], set[int]]:
        """The sites of hand-written marks that name no barrier, and the units whose barriers they record.

        The barrier is that of the next wait, or the next arrival, in the text.
        """
        sites: list[_Site] = []
        named: set[int] = set()
        places = list(self.uses)
        for gap, mark in self.code.asked:
            name, operation, *_ = mark.split()
            wanted = ("wait", "wait_state") if operation == "wait" else (operation, *_ARRIVALS)
            for at in places[bisect.bisect_left(places, gap) :]:
                unit, use = self.uses[at]
                if use.does in wanted and at not in named:
                    found = list(self._by_hand(unit, use))
                    inner = self.open.get(unit.at, ())
                    # A wait ends with the innermost region around it, which automatic marks may have put there.
                    region = inner[-1] if operation == "wait" and unquote(name) in inner else unquote(name)
                    sites += [replace(site, region=region) for site in found]
                    named.add(unit.at)
                    break
        return sites, named

    def _by_hand(self, unit: Unit, use: BarrierUse) -> Iterator[_Site]:
        if use.does not in ("wait", "wait_state"):
            yield from self._alone(unit, use)
            return
        loops = [loop for loop in self.spinning if unit.block in loop.body]
        behind = not loops
        gaps = (entry_gaps(self.code, loops[0]) or []) if loops else [unit.at]
        guard = use.done if behind and use.done != "_" else NO_OPERAND
        operands = self._operands(use, guard, extra=str(AFTER) if behind else "")
        if operands is not None:
            yield from (_Site(gap, behind, "", operands, unit) for gap in gaps)

    def find(self) -> Iterator[_Site]:
        claimed: set[int] = set()
        for loop in self.spinning:
            for number in loop.body:
                block = self.code.blocks[number]
                claimed.update(range(block.start, block.stop))
            yield from self._spin(loop)
        uses = [used for at, used in self.uses.items() if at not in claimed]
        for index, (unit, use) in enumerate(uses):
            following = uses[index + 1] if index + 1 < len(uses) else None
            if following is None or not _one_record(unit, use, *following):
                yield from self._alone(unit, use)

    def _spin(self, loop: Loop) -> Iterator[_Site]:
        """A loop that tests one barrier until its phase is complete."""
        units = [unit for number in sorted(loop.body) for unit in self._units(number)]
        uses = {use for unit in units if unit.instruction and (use := barrier_use(unit.instruction)) is not None}
        gaps = entry_gaps(self.code, loop) or []
        kept = {replace(use, done="") for use in uses}
        if len(kept) != 1:
            return
        use = kept.pop()
        written = {name for unit in units if unit.instruction for name in written_by(unit.instruction)}
        if {use.address, use.parity} & written:
            return
        unit = next(unit for unit in units if unit.instruction and barrier_use(unit.instruction))
        for gap in gaps:
            yield from self._wait(gap, unit, use, guard=NO_OPERAND, behind=False)

    def _alone(self, unit: Unit, use: BarrierUse) -> Iterator[_Site]:
        if use.does in ("wait", "wait_state"):
            guard = use.done if use.done != "_" else NO_OPERAND
            yield from self._wait(unit.at, unit, use, guard=guard, behind=True)
        elif use.does == "sync" and use.address == "0" and not use.threads and not self.of_blocks:
            return
        elif use.does in ("sync", "cluster_wait"):
            yield from self._wait(unit.at, unit, use, guard=NO_OPERAND, behind=False)
        else:
            operands = self._operands(use, self._guard(unit))
            if operands is not None:
                what = "copy issue" if use.does in _COPIES else "mbarrier arrive"
                yield _Site(unit.at, False, self._name(unit, what), operands, unit)

    def _wait(self, at: int, unit: Unit, use: BarrierUse, *, guard: str, behind: bool) -> Iterator[_Site]:
        """A wait inside a region of its own; without one nothing says when it ended."""
        inner = self.open.get(unit.at, ())
        pattern = _BARRIER_REGION if use.does in ("sync", "cluster_wait") else _WAIT_REGION
        operands = self._operands(use, guard, extra=str(AFTER) if behind else "")
        if inner and pattern.match(inner[-1]) and operands is not None and not self._shares_region(unit, use):
            yield _Site(at, behind, inner[-1], operands, unit)

    def _shares_region(self, unit: Unit, use: BarrierUse) -> bool:
        """Whether the region of a block barrier has another one, so that its end does not say when this one ended."""
        if use.does not in ("sync", "cluster_wait"):
            return False
        return unit.at not in self.code.marks or unit.at + 1 not in self.code.marks

    def _units(self, block: int) -> list[Unit]:
        return self.code.units[self.code.blocks[block].start : self.code.blocks[block].stop]

    def _name(self, unit: Unit, what: str) -> str:
        inner = self.open.get(unit.at, ())
        if inner and inner[-1].split(" ")[0] in ("copy", "mbarrier"):
            return inner[-1]
        return region_name(what, *unit.location) if unit.location else f"{what} {self.kernel}+{unit.number}"

    def _operands(self, use: BarrierUse, guard: str, extra: str = "") -> BarrierOperands | None:
        space = self._space(use)
        if space is None or not _fits(use.parity):
            return None
        extra = extra or use.threads
        if use.mask:
            extra = f"u16:{use.mask}" if use.mask.startswith("%") and self.code.size_of(use.mask) == 2 else use.mask
        if extra.isdigit() and int(extra) > MAX_EXTRA:
            return None
        return BarrierOperands(
            Operation[use.does.upper()], *space, use.parity or NO_OPERAND, extra or NO_OPERAND, guard
        )

    def _space(self, use: BarrierUse) -> tuple[str, str, int] | None:
        """How to compute the barrier's number: the kind of operand, its name and offset."""
        if use.does in ("cluster_arrive", "cluster_wait"):
            return "cluster", "", 0
        if use.address.isdigit():
            return "number", use.address, 0
        size = self.code.size_of(use.address)
        if use.generic:
            return ("generic", use.address, use.offset) if size == 8 else None
        if size:
            return ({4: "u32", 8: "u64"}[size], use.address, use.offset) if size in (4, 8) else None
        return None if use.address.startswith("%") else ("symbol", use.address, use.offset)

    def _guard(self, unit: Unit) -> str:
        """The predicate under which lane 0 arrives. One that elects a lane is true for the warp as a whole."""
        instruction = unit.instruction
        assert instruction is not None
        if instruction.predicate is None:
            return NO_OPERAND
        sign = "!" if instruction.negated else ""
        name = instruction.predicate
        for _ in range(4):
            writers = self.writers.of(name)
            maker = writers[0] if len(writers) == 1 else None
            if sign or maker is None:
                break
            if maker.opcode == "elect":
                return NO_OPERAND
            if maker.opcode != "and" or "pred" not in maker.modifiers:
                break
            others = [one for one in maker.operands[1:] if not self._elects(one)]
            if len(others) != 1:
                break
            name = others[0]
        return sign + name

    def _elects(self, name: str) -> bool:
        writers = self.writers.of(name)
        return len(writers) == 1 and writers[0].opcode == "elect"


def _one_record(unit: Unit, use: BarrierUse, next_unit: Unit, next_use: BarrierUse) -> bool:
    """Whether the next instruction's record stands for this one too: copies to the same barrier in the same block."""
    same = (use.address, use.offset) == (next_use.address, next_use.offset)
    return same and unit.block == next_unit.block and use.does in _COPIES and next_use.does in _COPIES


def _fits(parity: str) -> bool:
    return not parity or parity.isdigit() or re.fullmatch(r"[%\w$]+", parity) is not None


def open_regions(code: FunctionUnits, wanted: Container[int]) -> dict[int, tuple[str, ...]]:
    """The names of the regions that are open at each of the wanted units, outermost first."""
    found: dict[int, tuple[str, ...]] = {}
    entered: dict[int, tuple[str, ...]] = {0: ()}
    todo, marks = [0] if code.blocks else [], code.marks
    while todo:
        number = todo.pop()
        block, stack = code.blocks[number], entered[number]
        for at in range(block.start, block.stop):
            if at in marks and (at > block.start or number == 0):
                stack = _after(stack, marks[at])
            if at in wanted:
                found[at] = tuple(map(unquote, stack))
        for follower in [one for one in block.after if one not in entered]:
            # Marks before the next block's label are only executed when falling through to it.
            falls = follower == number + 1 and code.falls_through(code.units[block.stop - 1])
            entered[follower] = _after(stack, marks.get(block.stop, [])) if falls else stack
            todo.append(follower)
    return found


def _after(stack: tuple[str, ...], marks: list[tuple[str, str]]) -> tuple[str, ...]:
    """The open regions behind some marks, by their encoded names."""
    for letter, name in marks:
        if letter == "B":
            stack = (*stack, name)
        elif letter == "E" and stack and stack[-1] == name:
            stack = stack[:-1]
        elif letter == "E" and name in stack:
            last = len(stack) - 1 - stack[::-1].index(name)
            stack = stack[:last] + stack[last + 1 :]
    return stack
