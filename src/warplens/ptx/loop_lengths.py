"""Whether a loop of unknown length runs equally often in all warps of a block, and in all blocks.

It does if what ends it is the same: a parameter, and a counter that starts where all start. A counter that starts with
the thread's or the block's index and moves on by all threads or blocks runs once more in some of them, which is equal
enough. What is loaded may differ, unless all read it at one address.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from warplens.ptx.block_dependence import BlockDependence
from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.lane_values import LANES
from warplens.ptx.natural_loops import NaturalLoop
from warplens.ptx.operands import RegisterWriters, names
from warplens.ptx.thread_values import ThreadValues, difference
from warplens.ptx.tree import Instruction

_TAKEN = frozenset({"atom", "call", "clusterlaunchcontrol"})
_PRIVATE = frozenset({"shared", "local", "volatile", "acquire"})
"""Of loads whose values may differ from block to block although their addresses do not."""
_Tests = list[tuple[str, str]]


class LoopLengths:
    """What is known of the loops of one function in blocks of one shape."""

    def __init__(
        self, flow: ControlFlow, writers: RegisterWriters, values: ThreadValues, depends: BlockDependence
    ) -> None:
        self._flow, self._writers, self._values, self._depends = flow, writers, values, depends
        self._known: dict[int, tuple[bool, bool]] = {}

    def uneven(self, loop: NaturalLoop) -> tuple[bool, bool]:
        """Whether it may run longer in some warps of a block than in others, and in some blocks than in others."""
        if loop.header not in self._known:
            tests = self._tests(loop)
            warps = tests is None or any(self._differs_by_warp(loop, *each) for each in tests)
            warps = warps or self._is_picked(loop)
            blocks = tests is None or any(self._differs_by_block(loop, *each) for each in tests)
            self._known[loop.header] = warps, blocks
        return self._known[loop.header]

    def _tests(self, loop: NaturalLoop) -> _Tests | None:
        """The pairs of numbers whose comparisons end the loop; None where something else may."""
        found: _Tests = []
        for number in sorted(loop.blocks):
            block = self._flow.blocks[number]
            if all(after in loop.blocks for after in block.successors):
                continue
            compared = self._compared(block.predicate) if block.predicate else None
            if compared is None:
                return None
            found += compared
        return found

    def _compared(self, predicate: str, depth: int = 4) -> _Tests | None:
        writers = self._writers.of(predicate)
        if len(writers) != 1 or not depth:
            return None
        one = writers[0]
        operands = [text.strip() for text in one.operands[1:]]
        if one.opcode == "setp" and len(operands) == 2:
            return [(operands[0], operands[1])]
        if one.opcode not in ("and", "or", "not") or "pred" not in one.modifiers:
            return None
        parts = [self._compared(text, depth - 1) for text in operands]
        known = [part for part in parts if part is not None]
        return [pair for part in known for pair in part] if len(known) == len(parts) else None

    def _differs_by_warp(self, loop: NaturalLoop, first: str, second: str) -> bool:
        apart = difference(self._values.of(first), self._values.of(second))
        if apart.threads is None:
            return True
        last = apart.threads.reshape(-1, LANES).max(axis=1)
        return int(np.ptp(last)) > self._step(loop, first, second)

    def _is_picked(self, loop: NaturalLoop) -> bool:
        """Whether each warp runs it in rounds of its own of a loop around it, as with `if (item == warp)`: how long it
        is may be the same for all at any time, but not from round to round."""
        inner, above = loop.header, self._flow.dominators.parent[loop.header]
        while above >= 0:
            one = self._flow.blocks[above]
            alone = inner in one.successors and self._flow.predecessors[inner] == [above]
            if one.predicate and alone and self._compares_warps(one.predicate) and self._comes_again(loop, above):
                return True
            inner, above = above, self._flow.dominators.parent[above]
        return False

    def _compares_warps(self, predicate: str) -> bool:
        """Whether a condition holds for those warps whose number is equal to something else."""
        writers = self._writers.of(predicate)
        if len(writers) != 1 or writers[0].opcode != "setp" or not {"eq", "ne"} & set(writers[0].modifiers):
            return False
        sides = [self._values.of(text) for text in writers[0].operands[1:]]
        if len(sides) != 2:
            return False
        apart = difference(*sides)
        if apart.threads is None or not apart.terms:
            return False
        by_warp = apart.threads.reshape(-1, LANES)
        return bool((by_warp == by_warp[:, :1]).all() and np.ptp(by_warp))

    def _comes_again(self, loop: NaturalLoop, block: int) -> bool:
        """Whether the code after a loop leads back to a block before it."""
        seen: set[int] = set()
        work = list(loop.exits)
        while work:
            one = work.pop()
            if one == block:
                return True
            if one not in seen:
                seen.add(one)
                work += self._flow.blocks[one].successors
        return False

    def _step(self, loop: NaturalLoop, *counters: str) -> float:
        """By how much a counter moves on in each round; by more than anything where that is known at run time only."""
        steps = [0.0]
        for one in self._moves(loop, *counters):
            amounts = [self._values.of(text) for text in one.operands[1:]]
            fixed = [value for value in amounts if value.firm and value.uniform]
            steps += [math.inf if value.number is None else abs(float(value.number)) for value in fixed]
        return max(steps)

    def _moves(self, loop: NaturalLoop, *counters: str) -> Iterator[Instruction]:
        """The additions of the loop to one of some counters, or to what they are copied from."""
        nodes = [node for number in loop.blocks for node in self._flow.blocks[number].instructions]
        known = {name for counter in counters for name in names(counter)}
        copies = [one for one in nodes if one.opcode == "mov" and known & names(one.arguments)]
        known |= {name for one in copies for name in names(one.arguments)}
        for one in nodes:
            if one.opcode in ("add", "sub") and one.operands and one.operands[0].strip() in known:
                yield one

    def _differs_by_block(self, loop: NaturalLoop, *compared: str) -> bool:
        behind = list(self._behind(*compared))
        if any(one.opcode in _TAKEN or (one.opcode == "ld" and _PRIVATE & set(one.modifiers)) for one in behind):
            return True
        if not any(self._depends.axes(text) for text in compared):
            return False
        # A stride of all blocks.
        moved = [text for one in self._moves(loop, *compared) for text in one.operands[1:]]
        return not any("%nctaid" in one.arguments for text in moved for one in self._behind(text))

    def _behind(self, *operands: str) -> Iterator[Instruction]:
        """The instructions that the values of operands depend on."""
        seen: set[str] = set()
        work = [name for text in operands for name in names(text)]
        while work:
            name = work.pop()
            if name not in seen:
                seen.add(name)
                for one in self._writers.of(name):
                    yield one
                    work += names(" ".join(one.operands[1:]))
