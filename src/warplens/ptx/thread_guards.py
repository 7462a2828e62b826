"""Which threads of a block run a piece of code: what the conditions around it say about the thread's index.

A condition on anything else, such as a bound of the data, is taken to hold. `if (threadIdx.x == 0)` leaves one thread
of the block, an elected lane one of each warp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.lane_values import LANES, LaneValues, WarpPlace
from warplens.ptx.operands import RegisterWriters
from warplens.ptx.tree import Function, Instruction

_WARPS = 16
"""Of a block whose size is not known."""
_MOST_WARPS = 32
"""A block has no more on any device; damaged PTX may name more."""
_INDEX = ("%tid", "%laneid", "%warpid")
Guard = tuple[str, bool]
"""A predicate register, and whether it must be false."""
_Threads = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class ActiveThreads:
    """These `lanes` of a warp are active, in `share` of the warps. `warps` is how many of each block these are, None
    where they are spread over the block. `known` says that a condition says so."""

    lanes: tuple[int, ...] = tuple(range(LANES))
    warps: float | None = None
    share: float = 1.0
    known: bool = False


ALL_THREADS = ActiveThreads()


class ThreadGuards:
    """The conditions on the thread's index in one function."""

    def __init__(
        self, function: Function, flow: ControlFlow, writers: RegisterWriters, width: int | None = None
    ) -> None:
        self._flow, self._width = flow, width
        self._function = function
        sizes = function.performance.get("reqntid") or function.performance.get("maxntid")
        self._warps_of_block = min(max(math.prod(sizes) // LANES, 1), _MOST_WARPS) if sizes else _WARPS
        self._writers = writers
        self._above: dict[int, frozenset[Guard]] = {0: frozenset()}
        self._values: list[LaneValues] = []
        self._found: dict[frozenset[Guard], ActiveThreads] = {}
        self._of_guard: dict[Guard, _Threads | None] = {}

    def around(self, block: int) -> frozenset[Guard]:
        """The conditions that hold in a block: branches that every path to it takes the same way."""
        path = []
        while block not in self._above:
            path.append(block)
            block = self._flow.dominators.parent[block]
            if block < 0:
                self._above[block] = frozenset()
        for one in reversed(path):
            above = self._flow.dominators.parent[one]
            own = self._edge(above, one) if above >= 0 else None
            self._above[one] = self._above.get(above, frozenset()) | ({own} if own else frozenset())
        return self._above[path[0] if path else block]

    def _edge(self, before: int, block: int) -> Guard | None:
        """The condition of the branch from one block to another that is only reached by it."""
        one = self._flow.blocks[before]
        if len(one.successors) != 2 or one.successors[0] == one.successors[1] or one.predicate is None:
            return None
        if self._flow.predecessors[block] != [before]:
            return None
        jump = one.nodes[-1]
        assert isinstance(jump, Instruction)
        taken = one.successors[0] == block
        return one.predicate, jump.negated == taken

    def active(self, guards: Iterable[Guard]) -> ActiveThreads:
        """The threads for which all of `guards` hold."""
        key = frozenset(guards)
        if key not in self._found:
            self._found[key] = self._active(key) if key else ALL_THREADS
        return self._found[key]

    def _active(self, guards: frozenset[Guard]) -> ActiveThreads:
        threads = np.ones((self._warps_of_block, LANES), bool)
        known = False
        for guard in guards:
            held = self._threads(guard)
            if held is not None:
                threads &= held
                known = True
        some: _Threads = np.asarray(threads.any(axis=1))
        if not known or not some.any():
            return ALL_THREADS
        lanes = tuple(np.flatnonzero(threads[some.argmax()]).tolist())
        if some.all():
            return ActiveThreads(lanes, known=True)
        # One warp or some neighbours do something for the block; every second warp does it as its own work.
        if some.sum() <= len(some) / 2 and len(np.flatnonzero(np.diff(some))) <= 2:
            return ActiveThreads(lanes, float(some.sum()), float(some.mean()), known=True)
        return ActiveThreads(lanes, share=float(some.mean()), known=True)

    def _threads(self, guard: Guard) -> _Threads | None:
        """The threads for which a condition holds; None where it depends on something else."""
        if guard not in self._of_guard:
            self._of_guard[guard] = None  # a predicate that depends on itself says nothing
            self._of_guard[guard] = self._look_up(guard)
        return self._of_guard[guard]

    def _look_up(self, guard: Guard) -> _Threads | None:
        name, negated = guard
        writers = self._writers.of(name)
        if len(writers) != 1:
            return None
        one = writers[0]
        if one.opcode == "not" and len(one.operands) == 2:
            return self._threads((one.operands[1].strip(), not negated))
        if one.opcode in ("and", "or") and "pred" in one.modifiers and len(one.operands) == 3:
            sides = [self._threads((text.strip(), negated)) for text in one.operands[1:]]
            known = [side for side in sides if side is not None]
            if (one.opcode == "and") != negated:  # both must hold
                return known[0] & known[-1] if known else None
            return known[0] | known[1] if len(known) == 2 else None
        if one.opcode not in ("setp", "elect") or not self._depends_on_thread(one):
            return None
        values = [warp.of(name) for warp in self._warps()]
        if not all(value.exact and value.lanes is not None for value in values):
            return None
        held: _Threads = np.array([value.lanes for value in values], np.int64) != 0
        return ~held if negated else held

    def _depends_on_thread(self, test: Instruction) -> bool:
        return test.opcode == "elect" or self._writers.depends(test, _INDEX)

    def _warps(self) -> list[LaneValues]:
        if not self._values:
            tests = [
                name
                for name, writers in self._writers.by_name.items()
                if len(writers) == 1 and writers[0].opcode in ("setp", "elect") and self._depends_on_thread(writers[0])
            ]
            places = [WarpPlace(warp, self._width) for warp in range(self._warps_of_block)]
            self._values = [LaneValues(self._function, tests, place) for place in places]
        return self._values
