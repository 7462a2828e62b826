"""The code of a function in segments between marks, and the path through them that one instance of a region runs.

An instance runs one arm of a branch, not both, and leaves where its path ends. Which arm cannot be known from the text;
the path with the most instructions is taken, so that code behind a check of bounds counts, and early exits do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.lane_accesses import ACCESSES
from warplens.ptx.natural_loops import NaturalLoop
from warplens.ptx.tree import Instruction
from warplens.record.layout import Kind
from warplens.weave.mark_sites import MarkSite
from warplens.weave.region_paths import open_names

_UNKNOWN_TRIPS = 8
"""Of a loop whose bounds are not constants, where the longer of two paths is looked for."""
_ACCESS_WEIGHT = 8
"""Beside other instructions."""
_HEAVY = frozenset({*ACCESSES, "cp", "mbarrier", "atom", "red", "mma", "wgmma", "wmma"})


@dataclass
class CodeSegment:
    """Instructions of one basic block without the begin or end of a region among them, with their places among all
    nodes. `open_` are the regions that are open there, the innermost last. `begins` is the region whose begin is right
    before it, `ends` the one whose end is; `enters` is the region whose begin is right after it."""

    block: int
    open_: tuple[str, ...]
    nodes: list[tuple[int, Instruction]] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    begins: str = ""
    ends: str = ""
    enters: str = ""
    last: bool = False
    """Whether the warp exits after it."""


class CodeSegments:
    """The segments of a function, and the loops that each is in."""

    def __init__(self, flow: ControlFlow, sites: Sequence[MarkSite], loops: Sequence[NaturalLoop]) -> None:
        self.flow = flow
        self.loops_of: list[list[NaturalLoop]] = [[] for _ in flow.blocks]
        for loop in loops:
            for number in loop.blocks:
                self.loops_of[number].append(loop)
        self.all = self._split(sites)
        self._next = self._without_cycles(loops)

    def _split(self, sites: Sequence[MarkSite]) -> list[CodeSegment]:
        marks = {id(site.position.node): site.mark for site in sites if site.mark.kind in (Kind.BEGIN, Kind.END)}
        before = open_names(self.flow, sites)
        found: list[CodeSegment] = []
        heads, tails, at = [], [], -1
        for number, block in enumerate(self.flow.blocks):
            opened = before[number]
            current = CodeSegment(number, opened)
            heads.append(len(found))
            found.append(current)
            for node in block.nodes:
                at += 1
                mark = marks.get(id(node))
                if mark is None:
                    if isinstance(node, Instruction):
                        current.nodes.append((at, node))
                    continue
                begin = mark.kind is Kind.BEGIN
                if not begin and mark.name not in opened:
                    continue
                if begin:
                    current.enters, opened = mark.name, (*opened, mark.name)
                else:
                    last = len(opened) - 1 - opened[::-1].index(mark.name)
                    opened = opened[:last] + opened[last + 1 :]
                current.successors = [len(found)]
                current = CodeSegment(number, opened, begins=mark.name * begin, ends=mark.name * (not begin))
                found.append(current)
            tails.append(len(found) - 1)
        for number, block in enumerate(self.flow.blocks):
            found[tails[number]].successors = [heads[after] for after in block.successors]
            found[tails[number]].last = len(self.flow.blocks) - 1 in block.successors
        self._heads = heads
        return found

    def _without_cycles(self, loops: Sequence[NaturalLoop]) -> list[list[int]]:
        """The successors of each segment; at the end of a loop's body, what follows the loop."""
        exits = {loop.header: [self._heads[one] for one in loop.exits] for loop in loops}
        backward = {
            (one, loop.header)
            for loop in loops
            for one in loop.blocks
            if loop.header in self.flow.blocks[one].successors
        }
        heads = {head: number for number, head in enumerate(self._heads)}
        found = []
        for segment in self.all:
            ahead: dict[int, None] = {}
            work, seen = list(segment.successors), set()
            block = segment.block
            while work:
                one = work.pop(0)
                target = heads.get(one)
                if target is not None and (block, target) in backward and target not in seen:
                    seen.add(target)
                    work += exits[target]
                elif target is None or target not in seen:
                    ahead[one] = None
            found.append(list(ahead))
        return found

    def depth(self, segment: CodeSegment) -> int:
        return len(self.loops_of[segment.block])

    def repeats(self, segment: CodeSegment, start: CodeSegment | None) -> tuple[int, bool]:
        """How often a segment runs for each time that `start` does, by loops around the one and not the other; and
        whether there are such loops whose trips are not known, which count once."""
        around = self.loops_of[start.block] if start is not None else []
        inner = [loop for loop in self.loops_of[segment.block] if loop not in around]
        trips = 1
        for loop in inner:
            trips *= loop.trips or 1
        return trips, any(loop.trips is None for loop in inner)

    def unknown_loops(self, segment: CodeSegment, start: CodeSegment | None) -> list[NaturalLoop]:
        """The loops of unknown length around a segment and not around `start`."""
        around = self.loops_of[start.block] if start is not None else []
        return [loop for loop in self.loops_of[segment.block] if loop not in around and loop.trips is None]

    def path(
        self,
        start: int,
        inside: Callable[[CodeSegment], bool],
        own: Callable[[CodeSegment], bool],
        ends: Callable[[CodeSegment], bool] | None = None,
    ) -> list[CodeSegment]:
        """The segments of the heaviest path from one segment through those that are `inside`, `own` ones alone counted;
        with `ends`, to one of these."""
        order = self._postorder(start, inside)
        best: dict[int, tuple[float, int]] = {}
        for one in order:
            following = [(best[after][0], after) for after in self._next[one] if after in best]
            ahead = max(following, default=None)
            if ahead is None and ends is not None and not ends(self.all[one]):
                continue
            weight = self._weight(self.all[one], self.all[start]) if own(self.all[one]) else 0.0
            best[one] = (weight + (ahead[0] if ahead else 0.0), ahead[1] if ahead else -1)
        found, at = [], start if start in best else -1
        while at >= 0:
            if own(self.all[at]):
                found.append(self.all[at])
            at = best[at][1]
        return found

    def _postorder(self, start: int, inside: Callable[[CodeSegment], bool]) -> list[int]:
        seen, order = {start}, []
        work = [(start, iter(self._next[start]))]
        while work:
            number, following = work[-1]
            after = next(following, None)
            if after is None:
                order.append(number)
                work.pop()
            elif after not in seen and inside(self.all[after]):
                seen.add(after)
                work.append((after, iter(self._next[after])))
        return order

    def _weight(self, segment: CodeSegment, start: CodeSegment) -> float:
        if not segment.nodes:
            return 0.0
        weight = float(sum([_ACCESS_WEIGHT if node.opcode in _HEAVY else 1 for _, node in segment.nodes]))
        around = self.loops_of[start.block]
        for loop in self.loops_of[segment.block]:
            if loop not in around:
                weight *= loop.trips or _UNKNOWN_TRIPS
        return weight

    def starts(self, chosen: Callable[[CodeSegment], bool]) -> list[int]:
        """The numbers of segments, of those in the most loops where some are: what runs most often."""
        found = [number for number, one in enumerate(self.all) if chosen(one)]
        deepest = max((self.depth(self.all[number]) for number in found), default=0)
        return [number for number in found if self.depth(self.all[number]) == deepest]
