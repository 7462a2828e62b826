"""What an instance of each region executes, counted in the PTX before it is woven: recorded with every launch."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from warplens.ptx.address_bases import AddressBases, Bases
from warplens.ptx.barrier_need import barrier_needs
from warplens.ptx.block_dependence import BlockDependence
from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.lane_accesses import LaneAccess, accessed_address, lane_access, largest_waste
from warplens.ptx.lane_values import LaneValues, WarpPlace
from warplens.ptx.loop_lengths import LoopLengths
from warplens.ptx.natural_loops import NaturalLoop, natural_loops
from warplens.ptx.operands import RegisterWriters
from warplens.ptx.thread_guards import ALL_THREADS, ThreadGuards
from warplens.ptx.thread_values import ThreadValues, block_shapes
from warplens.ptx.tree import Function, Instruction
from warplens.weave.access_bytes import Executed, by_base, load_levels, moved_and_touched
from warplens.weave.code_between import CodeBetween
from warplens.weave.code_segments import CodeSegment, CodeSegments
from warplens.weave.instruction_counts import COUNTED, Counts, bulk_bytes, count
from warplens.weave.mark_sites import MarkSite
from warplens.weave.polling_loops import polled, tests

OUTSIDE = ""
"""Stands for the code outside all regions."""
NARROW = (16, 8)
"""Threads in a row of a block for which kernels that use `threadIdx.y` are counted, too."""
UNCOUNTED = "is recorded without counts of what its regions execute"
_LARGEST = 200_000
"""Instructions of a function; larger ones are not looked at, as that would take longer than weaving them."""
_UNKNOWN_TRIPS = 8
"""Of a loop of unknown length, for means over accesses inside and outside it."""
_known: OrderedDict[tuple[str, tuple[tuple[str, int], ...]], dict[str, Counts]] = OrderedDict()
"""A search weaves the same function several times."""
_MOST_KNOWN = 32


def region_code(
    function: Function, numbers: Mapping[str, int], sites: Sequence[MarkSite], between: Sequence[CodeBetween] = ()
) -> dict[str, Counts]:
    """Counts for each region by its number, and for the code outside all regions (`""`).

    They are those of one instance of the region that runs the longest path through it, per warp. An instruction belongs
    to the innermost region that is open when it runs, and code in `between` to every region that it is part of. Counts
    that differ for blocks with short rows carry the length of a row in their names (`load_waste@16`).
    """
    key = function.text(), tuple(sorted(numbers.items()))
    if key not in _known:
        try:
            _known[key] = _of_function(function, numbers, sites, between)
        except Exception as error:  # counts only explain what is recorded
            warnings.warn(f"{function.name} {UNCOUNTED}: {error!r}. Please report this.", stacklevel=2)
            _known[key] = {}
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return _known[key]


def _of_function(
    function: Function, numbers: Mapping[str, int], sites: Sequence[MarkSite], between: Sequence[CodeBetween]
) -> dict[str, Counts]:
    instructions = list(function.instructions())
    if len(instructions) > _LARGEST:
        return {}
    counter = _Counter(function, instructions, sites)
    rows = any("%tid.y" in one.arguments for one in instructions)
    found = counter.regions(numbers, between, 32 if rows else None)
    for width in NARROW if rows else ():
        for number, counts in counter.regions(numbers, between, width).items():
            found[number] |= {
                f"{name}@{width}": value for name, value in counts.items() if found[number].get(name) != value
            }
    return found


class _Counter:
    """Counts the instances of the regions of one function."""

    def __init__(self, function: Function, instructions: Sequence[Instruction], sites: Sequence[MarkSite]) -> None:
        self.function, self.flow = function, ControlFlow(function)
        self.polls: dict[int, str] = {}
        loops = [loop for loop in natural_loops(function, self.flow) if not self._is_poll(loop)]
        self.segments = CodeSegments(self.flow, sites, loops)
        self.writers = RegisterWriters(instructions)
        self.depends = BlockDependence(self.writers)
        self.arrays = AddressBases(function, self.writers)
        self.needs = barrier_needs(function, self.flow)
        # Most instructions are no access to memory and have nothing to do with an address.
        moving = [one for one in instructions if one.opcode in COUNTED]
        self.addresses = [address for one in moving if (address := accessed_address(one))]
        self.addresses += [one.operands[-1] for one in moving if one.opcode == "mbarrier"]

    def _is_poll(self, loop: NaturalLoop) -> bool:
        """Whether a loop only polls; if so, its first test is noted."""
        nodes = [node for number in sorted(loop.blocks) for node in self.flow.blocks[number].instructions]
        kind = polled(nodes)
        if kind:
            self.polls[id(next(node for node in nodes if tests(node)))] = kind
        return bool(kind)

    def regions(
        self, numbers: Mapping[str, int], between: Sequence[CodeBetween], width: int | None
    ) -> dict[str, Counts]:
        self.values = LaneValues(self.function, self.addresses, WarpPlace(0, width))
        self.guards = ThreadGuards(self.function, self.flow, self.writers, width)
        self.accesses: dict[tuple[int, tuple[int, ...]], LaneAccess | None] = {}
        self._bounded: dict[str, bool] = {}
        every, found = self.segments.all, {}
        for name, number in numbers.items():
            starts = self.segments.starts(lambda one, name=name: one.begins == name)  # type: ignore[misc]
            parts = [
                self._executed(
                    self.segments.path(
                        start,
                        lambda one, name=name: name in one.open_,  # type: ignore[misc]
                        lambda one, name=name: one.open_[-1:] == (name,),  # type: ignore[misc]
                    ),
                    every[start],
                )
                for start in starts
            ]
            if parts:
                found[str(number)] = self._mean(parts)
        claimed: set[int] = set()
        for code in between:
            claimed |= code.nodes
            counts = self._between(code)
            if counts:
                found[str(numbers[code.name])] = counts
        outside = self.segments.path(0, lambda one: True, lambda one: not one.open_)
        left = [
            CodeSegment(one.block, one.open_, [pair for pair in one.nodes if pair[0] not in claimed]) for one in outside
        ]
        counts = self._mean([self._executed(left, None)])
        return found | ({OUTSIDE: counts} if counts else {})

    def _between(self, code: CodeBetween) -> Counts:
        starts = self.segments.starts(
            lambda one: not one.open_ and (one.ends == code.after if code.after else one is self.segments.all[0])
        )
        parts = []
        for start in starts:
            path = self.segments.path(
                start,
                lambda one: not one.open_,
                lambda one: not one.open_,
                lambda one: one.enters == code.before if code.before else one.last,
            )
            own = [CodeSegment(one.block, (), [pair for pair in one.nodes if pair[0] in code.nodes]) for one in path]
            parts.append(self._executed(own, self.segments.all[start]))
        return self._mean([part for part in parts if part])

    def _executed(self, path: Iterable[CodeSegment], start: CodeSegment | None) -> list[Executed]:
        """The instructions of a path that starts with `start`, or with the kernel."""
        outer = self.guards.around(start.block) if start is not None else frozenset()
        found = []
        for segment in path:
            if not segment.nodes:
                continue
            trips, looped = self.segments.repeats(segment, start)
            inner = self.guards.around(segment.block) - outer
            dropped = _other_side(segment)
            uneven = self._uneven(segment, start) if looped else (False, False)
            for _, node in segment.nodes:
                if id(node) not in dropped:
                    counted = node.opcode in COUNTED
                    own = {(node.predicate, node.negated)} if node.predicate and node.opcode != "bra" else set()
                    active = self.guards.active(inner | own) if counted else ALL_THREADS
                    access = self._access(node, active.lanes) if counted else None
                    found.append(Executed(node, access, active, trips, looped, self.segments.depth(segment), uneven))
                    if id(node) in self.polls:
                        found.append(Executed(_poll(self.polls[id(node)]), None, ALL_THREADS, trips, looped, 0))
        return found

    def _uneven(self, segment: CodeSegment, start: CodeSegment | None) -> tuple[bool, bool]:
        """Whether loops of unknown length may run longer in some warps of a block, and in some blocks."""
        lengths = [self.lengths.uneven(loop) for loop in self.segments.unknown_loops(segment, start)]
        return any(by_warp for by_warp, _ in lengths), any(by_block for _, by_block in lengths)

    @cached_property
    def lengths(self) -> LoopLengths:
        shape = block_shapes(self.function).usual[0]
        return LoopLengths(self.flow, self.writers, ThreadValues(self.writers, *shape), self.depends)

    def _kept_inside(self, register: str) -> bool:
        """Whether an address is computed with the smaller or larger of two numbers, which differs between lanes."""
        if register not in self._bounded:
            bounds = (one for one in self.writers.behind(register) if one.opcode in ("min", "max"))
            self._bounded[register] = any(not self.values.of(one.operands[0]).uniform for one in bounds)
        return self._bounded[register]

    def _access(self, node: Instruction, lanes: tuple[int, ...]) -> LaneAccess | None:
        key = id(node), lanes
        if key not in self.accesses:
            self.accesses[key] = lane_access(node, self.values, lanes)
        return self.accesses[key]

    def _mean(self, parts: Sequence[Sequence[Executed]]) -> Counts:
        """The mean of several places that an instance may run; what describes accesses is that of the worst place."""
        found: Counts = {}
        for executed in parts:
            for name, value in self._totals(executed).items():
                if name in _WORST:
                    found[name] = max(found.get(name, 0), value)
                else:
                    found[name] = found.get(name, 0) + value / len(parts)
        return {name: int(value) if value == int(value) else round(value, 3) for name, value in found.items() if value}

    def _totals(self, executed: Sequence[Executed]) -> Counts:
        counts: defaultdict[str, float] = defaultdict(float)
        for one in executed:
            if one.node.opcode == _POLL:
                counts[one.node.modifiers[0]] += one.trips
                continue
            counts["instructions"] += one.trips
            if one.looped:
                counts["unbounded"] = counts["lengths_known"] = 1
                for name, differs in zip(_UNEVEN, one.uneven, strict=True):
                    counts[name] = max(counts[name], float(differs))
            if one.node.opcode in COUNTED:
                count(counts, one)
                if need := self.needs.get(id(one.node)):
                    counts[f"{need.value}_barriers"] += one.trips
                    if one.looped:
                        counts["looped_barriers"] += one.trips
                if one.looped:
                    counts["loops"] = 1
        self._add_bytes(counts, executed)
        _describe(counts, [one for one in executed if one.access is not None])
        return counts

    def _add_bytes(self, counts: defaultdict[str, float], executed: Sequence[Executed]) -> None:
        def add(moved: float, one: Executed, axes: str | None = None, again: bool = False) -> None:
            if not moved:
                return
            if one.active.warps is not None:
                counts["block_bytes"] += moved * one.trips * one.active.warps
            else:
                often = one.trips * one.active.share
                counts["moved_bytes"] += moved * often
                if again or (one.access is not None and one.access.is_load and one.access.scattered):
                    counts["gathered_bytes"] += moved * often
                elif axes is not None and axes != self.depends.every:
                    counts[f"moved_by_{axes}"] += moved * often
            if one.looped:
                counts["repeats"] = 1

        fetched = 0.0
        loads = [one for one in executed if one.access and one.access.space == "global" and one.access.is_load]
        deepest = max((one.depth for one in loads), default=0)
        seen: set[Bases] = set()
        for some in by_base(executed):
            moved, touched = moved_and_touched(some)
            is_load = some[0].access is not None and some[0].access.is_load
            # Neighbours that are kept inside an image have addresses of their own, and mostly the same bytes.
            near = self.arrays.of(some[0].base, "global") if is_load and self._kept_inside(some[0].base) else None
            add(moved, some[0], self.depends.axes(some[0].base) if is_load else None, near in seen)
            seen |= {near} if near else set()
            counts["wasted_bytes"] += (touched - moved) * some[0].trips * some[0].active.share
            if is_load and some[0].depth == deepest:
                fetched += touched
        for one in executed:
            if one.access is None and one.node.opcode in COUNTED:
                moved_bytes = bulk_bytes(one, self.values)
                if moved_bytes is None:
                    counts["unknown_bytes"] += 1
                else:
                    add(moved_bytes, one)
        if fetched:
            levels = load_levels([one for one in executed if one.depth == deepest])
            counts["fetch_bytes"] = fetched / levels
            if levels > 1:
                counts["load_levels"] = levels


_POLL = "(poll)"
_UNEVEN = ("uneven_warps", "uneven_blocks")
_WORST = frozenset(
    {"ways", "load_waste", "store_waste", "loops", "repeats", "unbounded", "load_levels", "lengths_known", *_UNEVEN}
)


def _poll(kind: str) -> Instruction:
    """Stands for a loop that polls."""
    return Instruction("", "", 0, opcode=_POLL, modifiers=(kind,))


def _other_side(segment: CodeSegment) -> set[int]:
    """Of instructions with opposite predicates, such as the arms of a short branch, those of the shorter side, by
    `id`."""
    sides: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for _, node in segment.nodes:
        if node.predicate and node.opcode not in ("bra", "ret", "exit"):
            sides[node.predicate][node.negated].append(id(node))
    return {one for both in sides.values() if all(both) for one in min(both, key=len)}


def _describe(counts: defaultdict[str, float], executed: Sequence[Executed]) -> None:
    """How the lanes of a region's accesses lie to one another."""
    shared = conflicts = 0.0
    # Accesses before and after the loops of a region hardly count beside those inside them.
    deepest = max((one.depth for one in executed), default=0)
    for one in executed:
        assert one.access is not None
        if one.access.space == "shared":
            often = one.trips * one.active.share * (_UNKNOWN_TRIPS if one.looped else 1)
            shared += often
            conflicts += often * max(one.access.ways - 1, 0)
        if one.depth < deepest:
            continue
        if one.access.space == "shared":
            counts["ways"] = max(counts.get("ways", 0), one.access.ways)
        elif one.access.space == "global" and one.access.scattered:
            counts["scattered"] += one.trips
    if conflicts:
        counts["conflicts"] = conflicts * counts["shared"] / shared
    known = [
        one.access
        for one in executed
        if one.depth == deepest and one.access is not None and one.access.space == "global" and not one.access.scattered
    ]
    for key, is_load in (("load_waste", True), ("store_waste", False)):
        if wasted := largest_waste([one for one in known if one.is_load == is_load]):
            counts[key] = round(wasted, 2)
