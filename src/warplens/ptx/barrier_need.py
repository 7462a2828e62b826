"""Which barriers of a block are needed: does a warp access, after one, shared memory that another accessed before it?

A barrier orders what the warps of a block do to shared memory, or to global memory beside a flag. It is needed if a
word that one warp accesses on some way to the barrier is accessed by another warp on some way from it, before the next
barrier, and one of them writes. It is not needed if that is never so, given that the other barriers stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.lane_accesses import WORD, access_width
from warplens.ptx.lane_values import LANES
from warplens.ptx.operands import RegisterWriters
from warplens.ptx.thread_guards import Guard, ThreadGuards
from warplens.ptx.thread_values import ThreadValue, ThreadValues, block_shapes
from warplens.ptx.tree import Function, Instruction

_LOADS, _STORES, _ATOMICS = frozenset({"ld", "ldu"}), frozenset({"st"}), frozenset({"atom", "red"})
_ASYNCHRONOUS = frozenset({"cp", "ldmatrix", "stmatrix", "wgmma", "mbarrier", "tcgen05", "call", "tensormap"})
_BARRIERS = frozenset({"bar", "barrier"})
_FENCES = frozenset({"membar", "fence"})
_ORDERED = frozenset({"volatile", "acquire", "release", "relaxed", "mmio"})
_ORDER = "order"
"""Stands for global memory that is accessed to order other accesses: a flag, a counter, a fence."""
_MOST_PAIRS = 20_000
_DENSE = 0.6
_MOST_BARRIERS, _MOST_INSTRUCTIONS = 400, 20_000


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
        many = len(self.warps) > 1
        return many and len(self.words) > _DENSE * (max(self.words) - min(self.words) + 1)

    @cached_property
    def words(self) -> dict[int, tuple[int, int]]:
        """The lowest and the highest warp that accesses each word."""
        assert self.address is not None
        assert self.address.threads is not None
        here = np.flatnonzero(self.active)
        at = (self.address.threads[here][:, None] + np.arange(0, max(self.width, WORD), WORD)[None, :]) // WORD
        warp = np.repeat(here // LANES, at.shape[1])
        words, group = np.unique(at.reshape(-1), return_inverse=True)
        low, high = np.full(len(words), len(self.active)), np.full(len(words), -1)
        np.minimum.at(low, group.reshape(-1), warp)
        np.maximum.at(high, group.reshape(-1), warp)
        return dict(zip(words.tolist(), zip(low.tolist(), high.tolist(), strict=True), strict=True))


def barrier_needs(function: Function, flow: ControlFlow) -> dict[int, Need]:
    """Of each barrier of the whole block, by the `id` of its instruction, whether it is needed."""
    instructions = [node for block in flow.blocks for node in block.instructions]
    barriers = [one for one in instructions if one.opcode in _BARRIERS and "warp" not in one.modifiers]
    if not barriers or len(barriers) > _MOST_BARRIERS or len(instructions) > _MOST_INSTRUCTIONS:
        return {}
    writers = RegisterWriters(instructions)
    guards = ThreadGuards(function, flow, writers)
    found: dict[int, Need] = {}
    for number, (width, threads) in enumerate(block_shapes(function)):
        shape = _Shape(flow, guards, ThreadValues(writers, width, threads))
        for one in barriers:
            need = shape.need(one)
            found[id(one)] = need if not number or found[id(one)] is need else Need.UNKNOWN
    return found


class _Shape:
    """The accesses of a function in blocks of one shape."""

    def __init__(self, flow: ControlFlow, guards: ThreadGuards, values: ThreadValues) -> None:
        self._flow, self._guards, self._values = flow, guards, values
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
        """Whether a barrier is needed without those before it that were found to be not."""
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
        if node.opcode in _ASYNCHRONOUS | _FENCES:
            space = _ORDER if node.opcode in _FENCES else ""
            return _Access(space, True, True, None, 0, np.ones(self._values.count, bool))
        if node.opcode not in _LOADS | _STORES | _ATOMICS or not node.operands:
            return None
        space = next((name for one in node.modifiers if (name := one.partition("::")[0]) in _SPACES), "")
        if space in ("param", "local", "const"):
            return None
        at = -1 if node.opcode in _LOADS else min(1, len(node.operands) - 1) if node.opcode == "atom" else 0
        address = self._values.address(node.operands[at])
        own = {(node.predicate, node.negated)} if node.predicate else set()
        active = self._active({*self._guards.around(block), *own})
        writes = node.opcode not in _LOADS
        if space == "global" and (node.opcode in _ATOMICS or _ORDERED & set(node.modifiers)):
            return _Access(_ORDER, True, True, None, 0, active)
        return _Access(space, writes, node.opcode not in _STORES, address, access_width(node), active)

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
    if "shared" not in spaces:
        return _in_global_memory(one.address, other.address)
    if _variables(one.address) != _variables(other.address):
        return Need.UNNEEDED  # arrays of their own
    if one.address.threads is None or other.address.threads is None:
        return Need.UNKNOWN
    firm = one.address.firm and other.address.firm
    if one.address.terms != other.address.terms:
        # A tile that all warps walk through, and of which each writes its own part; or words side by side and others at
        # a distance that changes. What lies apart leaves room for an array of each thread or warp.
        shifted = one.is_alike != other.is_alike or (one.is_dense and other.is_dense)
        return Need.NEEDED if shifted and not firm else Need.UNKNOWN
    theirs = other.words
    for word, (low, high) in one.words.items():
        if word in theirs and not low == high == theirs[word][0] == theirs[word][1]:
            return Need.NEEDED
    return Need.UNNEEDED if firm else Need.UNKNOWN


def _variables(address: ThreadValue) -> set[str]:
    return {name for name in address.terms if not name.startswith("%")}


def _in_global_memory(one: ThreadValue, other: ThreadValue) -> Need:
    """Warps that write what others read later do so at one array."""
    arrays = _variables(one), _variables(other)
    apart = all(arrays) and not arrays[0] & arrays[1]
    return Need.UNNEEDED if apart else Need.UNKNOWN
