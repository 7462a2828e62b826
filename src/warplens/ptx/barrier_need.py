"""Which barriers of a block are needed: does a warp access, after one, shared memory that another accessed before it?

A barrier orders what the warps of a block do to shared memory, or to global memory beside a flag. It is needed if a
word that one warp accesses on some way to the barrier is accessed by another warp on some way from it, before the next
barrier, and one of them writes. It is not needed if that is never so, given that the other barriers stay. Where either
of two barriers may go, but not both, the one in the inner loop is the one to remove: warps pass it more often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from warplens.ptx.address_bases import AddressBases, Bases
from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.lane_accesses import WORD, access_width
from warplens.ptx.lane_values import LANES
from warplens.ptx.natural_loops import natural_loops
from warplens.ptx.operands import RegisterWriters
from warplens.ptx.thread_guards import Guard, ThreadGuards
from warplens.ptx.thread_values import ThreadValue, ThreadValues, block_shapes
from warplens.ptx.tree import Function, Instruction

_LOADS, _STORES, _ATOMICS = frozenset({"ld", "ldu"}), frozenset({"st"}), frozenset({"atom", "red"})
_ELSEWHERE = frozenset(
    {"cp", "ldmatrix", "stmatrix", "wgmma", "wmma", "mbarrier", "tcgen05", "call", "tensormap", "clusterlaunchcontrol"}
)
"""Instructions that may access any shared memory, also later than they are issued."""
_REMOTE = frozenset({"async", "bulk", "shared::cluster"})
_BARRIERS = frozenset({"bar", "barrier"})
_FENCES = frozenset({"membar", "fence", "griddepcontrol", "suld", "sust", "sured", "multimem"})
_ORDERED = frozenset({"volatile", "acquire", "release", "relaxed", "mmio"})
_ORDER = "order"
"""Stands for global memory that is accessed to order other accesses: a flag, a counter, a fence."""
_MOST_PAIRS = 20_000
_DENSE = 0.6
_MOST_BARRIERS, _MOST_INSTRUCTIONS = 400, 20_000


_Numbers = npt.NDArray[np.int64]


class Need(Enum):
    """Whether a barrier is needed."""

    NEEDED = "needed"
    UNNEEDED = "unneeded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class _Access:
    """An access of some threads; its address is None and its space empty where it may be anything in shared memory."""

    space: str
    writes: bool
    reads: bool
    address: ThreadValue | None
    width: int
    active: npt.NDArray[np.bool_]
    bases: Bases = None
    """The arrays that its address may be in, None for any."""

    @cached_property
    def warps(self) -> frozenset[int]:
        return frozenset((np.flatnonzero(self.active) // LANES).tolist())

    @cached_property
    def is_alike(self) -> bool:
        """Whether each of its warps, of which there are several, accesses the same words."""
        assert self.address is not None
        assert self.address.threads is not None
        rows = self.address.threads.reshape(-1, LANES)[sorted(self.warps)]
        return len(self.warps) > 1 and bool((rows == rows[0]).all())

    @cached_property
    def is_dense(self) -> bool:
        """Whether the words of several warps lie side by side."""
        words, _, _ = self.words
        return len(self.warps) > 1 and len(words) > _DENSE * (words[-1] - words[0] + 1)

    @cached_property
    def words(self) -> tuple[_Numbers, _Numbers, _Numbers]:
        """The words that are accessed, and the lowest and the highest warp that accesses each."""
        assert self.address is not None
        assert self.address.threads is not None
        here = np.flatnonzero(self.active)
        threads = self.address.threads
        if self.space == "shared":  # its addresses have 32 bits
            threads = ((threads + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31)
        at = (threads[here][:, None] + np.arange(0, max(self.width, WORD), WORD)[None, :]) // WORD
        warp = np.repeat(here // LANES, at.shape[1])
        words, group = np.unique(at.reshape(-1), return_inverse=True)
        low, high = np.full(len(words), len(self.active)), np.full(len(words), -1)
        np.minimum.at(low, group.reshape(-1), warp)
        np.maximum.at(high, group.reshape(-1), warp)
        return words, low, high


def barrier_needs(function: Function, flow: ControlFlow) -> dict[int, Need]:
    """Of each barrier of the whole block, by the `id` of its instruction, whether it is needed."""
    instructions = [node for block in flow.blocks for node in block.instructions]
    barriers = [one for one in instructions if one.opcode in _BARRIERS and "warp" not in one.modifiers]
    if not barriers or len(barriers) > _MOST_BARRIERS or len(instructions) > _MOST_INSTRUCTIONS:
        return {}
    writers = RegisterWriters(instructions)
    guards, bases = ThreadGuards(function, flow, writers), AddressBases(function, writers)
    shapes = block_shapes(function)
    often = _inner_first(barriers, function, flow)

    def judged(width: int, threads: int) -> list[Need]:
        shape = _Shape(flow, guards, bases, ThreadValues(writers, width, threads))
        needs = {at: shape.need(barriers[at]) for at in often}
        return [needs[at] for at in range(len(barriers))]

    usual = [judged(*each) for each in shapes.usual]
    found = [needs[0] if len(set(needs)) == 1 else Need.UNKNOWN for needs in zip(*usual, strict=True)]
    if any("%tid.z" in one.arguments for one in instructions):
        found = [Need.UNKNOWN] * len(barriers)
    for each in shapes.others:
        if Need.UNNEEDED in found:
            found = [
                Need.UNKNOWN if one is Need.UNNEEDED and other is not one else one
                for one, other in zip(found, judged(*each), strict=True)
            ]
    return {id(one): need for one, need in zip(barriers, found, strict=True)}


def _inner_first(barriers: list[Instruction], function: Function, flow: ControlFlow) -> list[int]:
    """The numbers of barriers, those in the innermost loops first."""
    loops = natural_loops(function, flow)
    at = {id(node): number for number, block in enumerate(flow.blocks) for node in block.instructions}
    depth = [sum(at[id(one)] in loop.blocks for loop in loops) for one in barriers]
    return sorted(range(len(barriers)), key=lambda number: -depth[number])


class _Shape:
    """The accesses of a function in blocks of one shape."""

    def __init__(self, flow: ControlFlow, guards: ThreadGuards, bases: AddressBases, values: ThreadValues) -> None:
        self._flow, self._guards, self._bases, self._values = flow, guards, bases, values
        self._pairs: dict[tuple[int, int], Need] = {}
        self._spare: set[int] = set()
        # Of each block, its accesses and, by their `id`, its barriers, in order.
        self._items: list[list[_Access | int]] = []
        self._at: dict[int, tuple[int, int]] = {}
        for number, block in enumerate(flow.blocks):
            items: list[_Access | int] = []
            for node in block.instructions:
                if _is_of_block(node):
                    self._at[id(node)] = (number, len(items))
                    items.append(id(node))
                elif (access := self._access(node, number)) is not None:
                    items.append(access)
            self._items.append(items)

    def need(self, barrier: Instruction) -> Need:
        """Whether a barrier is needed without those that were found before not to be."""
        place = self._at.get(id(barrier))
        if place is None:
            return Need.UNKNOWN  # of some warps only
        if "red" in barrier.modifiers:
            return Need.NEEDED  # it also tells all warps what each of them has
        before, after = self._reached(*place, backward=True), self._reached(*place, backward=False)
        pairs = ((one, other) for one in before for other in after if one.writes or other.writes)
        found = Need.UNNEEDED
        for number, (one, other) in enumerate(pairs):
            need = self._between(one, other) if number < _MOST_PAIRS else Need.UNKNOWN
            if need is Need.NEEDED:
                return need
            if need is Need.UNKNOWN:
                found = need
            if number >= _MOST_PAIRS:
                break
        if found is Need.UNNEEDED:
            self._spare.add(id(barrier))
        return found

    def _reached(self, block: int, at: int, *, backward: bool) -> list[_Access]:
        """The accesses on all ways to or from an item, up to the next barrier."""
        items = self._items[block]
        found: list[_Access] = []
        steps = self._flow.predecessors if backward else self._flow.successors
        work = list(steps[block]) if self._take(items[:at][::-1] if backward else items[at + 1 :], found) else []
        seen: set[int] = set()
        while work:
            one = work.pop()
            if one not in seen:
                seen.add(one)
                if self._take(self._items[one][::-1] if backward else self._items[one], found):
                    work += steps[one]
        return found

    def _take(self, items: Iterable[_Access | int], found: list[_Access]) -> bool:
        """Add accesses up to the first barrier; whether there was none."""
        for one in items:
            if isinstance(one, _Access):
                found.append(one)
            elif one not in self._spare:
                return False
        return True

    def _between(self, one: _Access, other: _Access) -> Need:
        key = id(one), id(other)
        if key not in self._pairs:
            self._pairs[key] = _exchange(one, other)
        return self._pairs[key]

    def _access(self, node: Instruction, block: int) -> _Access | None:
        everybody = np.ones(self._values.count, bool)
        moves = node.opcode in _LOADS | _STORES | _ATOMICS
        if node.opcode in _ELSEWHERE or (moves and _REMOTE & set(node.modifiers)):
            return _Access("", True, True, None, 0, everybody)
        if node.opcode in _FENCES or (node.opcode in _BARRIERS and "cluster" in node.modifiers):
            return _Access(_ORDER, True, True, None, 0, everybody)
        if not moves or not node.operands:
            return None
        space = next((name for one in node.modifiers if (name := one.partition("::")[0]) in _SPACES), "")
        if space in ("param", "local", "const"):
            return None
        at = -1 if node.opcode in _LOADS else min(1, len(node.operands) - 1) if node.opcode == "atom" else 0
        operand = node.operands[at]
        own = {(node.predicate, node.negated)} if node.predicate else set()
        active = self._active({*self._guards.around(block), *own})
        writes = node.opcode not in _LOADS
        if space == "global" and (node.opcode in _ATOMICS or _ORDERED & set(node.modifiers)):
            return _Access(_ORDER, True, True, None, 0, active)
        address, bases = self._values.address(operand), self._bases.of(operand, space)
        return _Access(space, writes, node.opcode not in _STORES, address, access_width(node), active, bases)

    def _active(self, guards: Iterable[Guard]) -> npt.NDArray[np.bool_]:
        """The threads for which conditions hold, as far as these are about the thread's index."""
        active = np.ones(self._values.count, bool)
        for name, negated in guards:
            value = self._values.of(name)
            if value.known and value.threads is not None:
                active &= (value.threads == 0) == negated
        return active


_SPACES = frozenset({"global", "shared", "local", "param", "const"})


def _is_of_block(node: Instruction) -> bool:
    """Whether all warps of the block wait at it."""
    if node.opcode not in _BARRIERS or {"warp", "cluster", "arrive"} & set(node.modifiers):
        return False
    return len(node.operands) < 2 or "red" in node.modifiers


def _exchange(one: _Access, other: _Access) -> Need:
    """Whether different warps access the same word by two instructions, of which one writes."""
    if len(one.warps | other.warps) <= 1:
        return Need.UNNEEDED
    spaces = {one.space, other.space}
    if _ORDER in spaces or "" in spaces:
        # What orders global memory says nothing about shared memory, and copies by themselves leave registers alone.
        return Need.UNNEEDED if spaces in ({_ORDER, "shared"}, {"", "global"}) else Need.UNKNOWN
    if one.address is None or other.address is None or len(spaces) > 1:
        return Need.UNNEEDED
    if one.bases and other.bases and not one.bases & other.bases:
        return Need.UNNEEDED  # arrays of their own
    if "shared" not in spaces or one.address.threads is None or other.address.threads is None:
        return Need.UNKNOWN
    if one.address.terms != other.address.terms:
        # A tile that all warps walk through, and of which each writes its own part; or words side by side and others at
        # a distance that changes. What lies apart leaves room for an array of each thread or warp.
        shifted = one.is_alike != other.is_alike or (one.is_dense and other.is_dense)
        return Need.NEEDED if shifted and _walks(one, other) else Need.UNKNOWN
    if _words_of_others(one, other):
        return Need.NEEDED
    return Need.UNNEEDED if one.address.firm and other.address.firm else Need.UNKNOWN


def _words_of_others(one: _Access, other: _Access) -> bool:
    """Whether two warps access a word, one by each access."""
    (words, low, high), (others, other_low, other_high) = one.words, other.words
    _, mine, theirs = np.intersect1d(words, others, assume_unique=True, return_indices=True)
    alone = (low == high)[mine] & (other_low == other_high)[theirs] & (low[mine] == other_low[theirs])
    return not bool(alone.all())


def _walks(one: _Access, other: _Access) -> bool:
    """Whether the address of one of two accesses changes while the kernel runs."""
    return any(each.address is not None and not each.address.firm for each in (one, other))
