"""Where a region begins and ends whose code is scattered over basic blocks: between its code and other code.

A region that control enters and leaves in several places has a mark at each of these. Code of the region that follows
other code of it, in whichever block, needs none in between. But where a loop goes on whose line is not in the region,
the region is part of an iteration, and begins anew in the next one.
"""

from __future__ import annotations

from warplens.auto.ptx.instruction_classes import HEAVY
from warplens.auto.ptx.units import LEAVES, FunctionUnits, UnitBlock

Runs = dict[int, list[tuple[int, int]]]
"""By block, the stretches of units [begin, end) that belong to a region, in order."""


class RangeEdges:
    """Finds the gaps for the marks of one region."""

    def __init__(self, code: FunctionUnits, runs: Runs, repeats: set[int]) -> None:
        """`repeats` are the jumps back to the start of loops that contain the region."""
        self.code, self.runs = code, runs
        self.entered = {number for number, found in runs.items() if self._light(self._head(number), found[0][0])}
        """Blocks at whose head the region may be open already."""
        # A mark at the head of the function's first block would also run when the function starts.
        self._repeats = {*(code.units[at].block for at in repeats), *code.blocks[0].before}
        self.left = {number for number, found in runs.items() if self._stays_open(number, found[-1][1])}
        """Blocks at whose tail it may still be open."""
        self._absorb()
        while not self._settled():
            pass

    def gaps(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """All begins and all ends."""
        begins, ends = set[int](), set[int]()
        for number, found in self.runs.items():
            for run in found:
                if run is not found[0] or number not in self.entered:
                    begins.add(run[0])
                if run is not found[-1] or number not in self.left:
                    ends.add(run[1])
        for number, block in enumerate(self.code.blocks):
            for after in block.after:
                if number in self.left and after not in self.entered:
                    ends.add(self._required(self._leaving(number, after)))
                elif number not in self.left and after in self.entered:
                    begins.add(self._required(self._entering(number, after)))
        if 0 in self.entered:
            begins.add(self._head(0))
        return tuple(sorted(begins)), tuple(sorted(ends))

    def _absorb(self) -> None:
        """Count blocks of light code, between code of the region on all sides, to the region."""
        blocks = self.code.blocks
        light = {
            number
            for number, block in enumerate(blocks)
            if number not in self.runs and self._light(block.start, block.stop) and self._stays_open(number, block.stop)
        }

        def enclosed(block: UnitBlock) -> bool:
            before, after = set(block.before), set(block.after)
            return bool(before and after) and before <= self.left | light and after <= self.entered | light

        while outside := {number for number in light if number == 0 or not enclosed(blocks[number])}:
            light -= outside
        self.entered |= light
        self.left |= light

    def _settled(self) -> bool:
        """Whether each edge between the region and other code has a gap of its own; if one has none, let the region end
        in the block before it, or begin in the block after it."""
        for number, block in enumerate(self.code.blocks):
            for after in block.after:
                if number in self.left and after not in self.entered and self._leaving(number, after) is None:
                    self._close(number)
                    return False
                if number not in self.left and after in self.entered and self._entering(number, after) is None:
                    self._open(after)
                    return False
        return True

    def _close(self, number: int) -> None:
        self.left.discard(number)
        if number not in self.runs:
            self.entered.discard(number)

    def _open(self, number: int) -> None:
        self.entered.discard(number)
        if number not in self.runs:
            self.left.discard(number)

    def _leaving(self, source: int, target: int) -> int | None:
        return self.code.on_edge(source, target, self.left)

    def _entering(self, source: int, target: int) -> int | None:
        return self.code.on_edge(source, target, set(self.code.blocks[target].before) - self.left)

    @staticmethod
    def _required(gap: int | None) -> int:
        assert gap is not None, "_settled has seen to it"
        return gap

    def _head(self, number: int) -> int:
        return self.code.head(self.code.blocks[number])

    def _stays_open(self, number: int, end: int) -> bool:
        """Whether only light code follows in a block, and control does not leave the function there."""
        block = self.code.blocks[number]
        last = self.code.units[block.stop - 1]
        if not block.after or number in self._repeats or last.opcode in LEAVES or last.opcode == "trap":
            return False
        return self._light(end, block.stop)

    def _light(self, begin: int, end: int) -> bool:
        return sum(unit.weight for unit in self.code.units[begin:end]) < HEAVY
