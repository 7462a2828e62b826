"""The scheduler: which lanes execute next, where they reconverge, and when they are done.

All lanes of a batch at the lowest block number execute together, so lanes and warps that diverged reconverge where
their paths meet. To keep a spinning warp from starving the one it waits for, a warp whose clock is far behind goes
first, and from time to time another block number gets a turn, for lanes that wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from warplens.ptx.syntax import PtxError
from warplens.simulate.batch_state import WARP, Group, State
from warplens.simulate.numeric import Array
from warplens.simulate.warp import lane_bits

if TYPE_CHECKING:
    from warplens.simulate.step_blocks import DecodedEntry, StepBlock

AT_BARRIER = 1 << 24
AT_JOIN = 1 << 25
DONE = 1 << 30
_LAG_CYCLES = 4096
_TURN = 4096
_POLL = _TURN // 8
_BARRIERS = 16


class LaneScheduler:
    """Executes one batch to its end."""

    def __init__(self, code: DecodedEntry, state: State, budget: int) -> None:
        self.code, self.state, self.budget = code, state, budget
        self.pc = np.where(state.live, 0, DONE)
        self.barrier = np.zeros(state.lanes, np.int64)
        self.wanted = np.zeros(state.lanes, np.int64)
        self.arrived = np.zeros((len(state.blocks), _BARRIERS), np.int64)
        self.brought = np.zeros(state.lanes, bool)
        self.deliver: dict[int, Callable[[Group], None]] = {}
        self.instructions = 0
        self._turns = self._rounds = 0
        self._released_at = -1
        """The instructions executed when all lanes last waited to reconverge."""

    def run(self) -> None:
        state, blocks = self.state, self.code.blocks
        with np.errstate(all="ignore"):
            group, index = self._select()
            while group is not None:
                block = blocks[index]
                if block.joins and not group.all_live:
                    joined = self._join(group, index, block)
                    if joined is None:
                        group, index = self._select()
                        continue
                    group = joined
                for step in block.steps:
                    step(state, group)
                self._account(group, block)
                index = block.end(self, group, index)
                if index >= 0:
                    if group.all_live:
                        continue
                    self.pc[group.mask] = index
                group, index = self._select()

    def _account(self, group: Group, block: StepBlock) -> None:
        warps = self.state.warps if group.warps is None else int(np.count_nonzero(group.warps))
        self.instructions += block.length * warps
        if block.cycles:
            self.state.advance(group, block.cycles)
        if self.instructions > self.budget:
            raise PtxError(
                0, self.code.name, f"the kernel did not finish within {self.budget} instructions",
                "raise max_steps, or look for a loop that never ends",
            )  # fmt: skip

    def _select(self) -> tuple[Group | None, int]:
        lowest = int(self.pc.min())
        while lowest >= AT_BARRIER:
            if lowest == DONE:
                return None, -1
            self._unblock()
            lowest = int(self.pc.min())
        mask = self.pc == lowest
        count = int(np.count_nonzero(mask))
        if count == self.state.live_count:
            return Group(mask, count, True), lowest
        mask, lowest = self._fair(mask, lowest)
        return Group(mask, int(np.count_nonzero(mask)), False), lowest

    def _fair(self, mask: Array, lowest: int) -> tuple[Array, int]:
        """Usually `mask` at `lowest`; another block from time to time, or that of a warp whose clock is far behind."""
        self._turns += _POLL if self.code.blocks[lowest].polls else 1
        if self._turns >= _TURN:
            self._turns = 0
            self._rounds += 1
            places = np.unique(self.pc[self.pc < AT_BARRIER])
            chosen = int(places[self._rounds % len(places)])
            return self.pc == chosen, chosen
        clocks = self.state.cycles
        per_warp = self.pc.reshape(-1, WARP)
        lowest_of_warp = per_warp.min(axis=1)
        slowest = np.where(lowest_of_warp < AT_BARRIER, clocks, np.iinfo(np.int64).max)
        last = int(slowest.argmin())
        if int(clocks[lowest_of_warp == lowest].min()) <= int(clocks[last]) + _LAG_CYCLES:
            return mask, lowest
        # Only lanes that are at the lowest block of their own warp, so that the warp can reconverge.
        chosen = int(lowest_of_warp[last])
        return (per_warp == chosen).reshape(-1) & np.repeat(lowest_of_warp == chosen, WARP), chosen

    def _unblock(self) -> None:
        """All lanes wait: release those that wait to reconverge, or report a deadlock at a barrier."""
        joining = (self.pc >= AT_JOIN) & (self.pc < DONE)
        if joining.any() and self._released_at != self.instructions:
            self._released_at = self.instructions
            self.pc[joining] -= AT_JOIN
            return
        stuck = np.flatnonzero((self.pc >= AT_BARRIER) & (self.pc < AT_JOIN))
        if not len(stuck):
            first = int(np.flatnonzero(joining)[0])
            raise PtxError(
                0, self.code.name,
                f"deadlock: {int(joining.sum())} threads wait for others of their warp, the first is "
                f"{self.state.name(first)}",
                "check that every lane in the member mask reaches the same warp-wide instruction",
            )  # fmt: skip
        first = int(stuck[0])
        raise PtxError(
            0, self.code.name,
            f"deadlock: {len(stuck)} threads wait at barrier {int(self.barrier[first])}, the first is "
            f"{self.state.name(first)}",
            "check that every thread of the block reaches the barrier, or that its thread count is right",
        )  # fmt: skip

    # -- meeting points

    def _join(self, group: Group, index: int, block: StepBlock) -> Group | None:
        """Make lanes that must execute together wait for the other lanes in the member mask."""
        parked = self.pc == index + AT_JOIN
        mask = group.mask | parked if parked.any() else group.mask
        present, live = lane_bits(mask), lane_bits(self.state.live)
        if block.members is None:
            needed = live
        else:
            own = np.where(mask, block.members(self.state.R), np.uint32(0)).reshape(-1, WARP)
            needed = np.bitwise_or.reduce(own, axis=1) & live
        complete = (needed & ~present) == 0
        go = mask & np.repeat(complete, WARP)
        wait = mask & ~go
        self.pc[wait] = index + AT_JOIN
        self.pc[go] = index
        count = int(np.count_nonzero(go))
        return Group(go, count, count == self.state.live_count) if count else None

    def leave(self, group: Group) -> None:
        """Retire the group's lanes, and release lanes that only waited for them."""
        state = self.state
        self.pc[group.mask] = DONE
        state.live = state.live & ~group.mask
        state.live_count -= group.count
        np.maximum(state.finished, state.cycles, out=state.finished, where=group.mask.reshape(-1, WARP).any(axis=1))
        if state.live_count and (self.pc >= AT_BARRIER).any():
            waiting = (self.pc >= AT_BARRIER) & (self.pc < AT_JOIN)
            for number in np.unique(self.barrier[waiting]):
                self._open(int(number))

    def synchronise(self, group: Group) -> None:
        """The warps of the group that are in the same block meet at a barrier: their clocks are equal afterwards."""
        clocks = self.state.cycles.reshape(len(self.state.blocks), -1)
        if group.warps is None:
            clocks[:] = clocks.max(axis=1, keepdims=True)
        else:
            here = group.warps.reshape(clocks.shape)
            latest = np.where(here, clocks, 0).max(axis=1, keepdims=True)
            np.copyto(clocks, latest, where=here)

    def arrive(
        self, group: Group, number: Array, count: int, after: int, waits: bool,
        deliver: Callable[[Group], None] | None = None,
    ) -> None:  # fmt: skip
        """The group's lanes arrive at their barriers; `count` threads open one, 0 means all of the block."""
        for which in np.unique(number[group.mask]):
            self.deliver.pop(int(which), None)
            if deliver is not None:
                self.deliver[int(which)] = deliver
            lanes = group.mask & (number == which)
            if waits:
                self.barrier[lanes] = which
                self.wanted[lanes] = count
                self.pc[lanes] = after + AT_BARRIER
            else:
                self.pc[lanes] = after
                self.arrived[:, int(which) % _BARRIERS] += (
                    self._with_inactive_lanes(lanes).reshape(len(self.state.blocks), -1).sum(axis=1)
                )
                self.wanted[(self.pc >= AT_BARRIER) & (self.pc < AT_JOIN) & (self.barrier == which)] = count
            self._open(int(which))

    def _with_inactive_lanes(self, lanes: Array) -> Array:
        """Add to `lanes` the missing lanes of warps whose live lanes are all in it."""
        state = self.state
        there = lanes.reshape(-1, WARP)
        complete = (there | ~state.live.reshape(-1, WARP)).all(axis=1) & there.any(axis=1)
        result: Array = (there | complete[:, None]).reshape(-1)
        return result

    def _open(self, number: int) -> None:
        """Release the blocks whose threads have all arrived at barrier `number`."""
        state = self.state
        waiting = (self.pc >= AT_BARRIER) & (self.pc < AT_JOIN) & (self.barrier == number)
        if not waiting.any():
            return
        shape = (len(state.blocks), state.lanes_per_block)
        wanted = np.where(waiting, self.wanted, 0).reshape(shape).max(axis=1)
        came = self._with_inactive_lanes(waiting).reshape(shape).sum(axis=1) + self.arrived[:, number % _BARRIERS]
        everyone = (waiting | ~state.live).reshape(shape).all(axis=1)
        ready = np.where(wanted > 0, came >= wanted, everyone) & waiting.reshape(shape).any(axis=1)
        if not ready.any():
            return
        self.arrived[ready, number % _BARRIERS] = 0
        free = waiting & np.repeat(ready, state.lanes_per_block)
        self.pc[free] -= AT_BARRIER
        group = Group(free, int(np.count_nonzero(free)), False)
        self.synchronise(group)
        if number in self.deliver:
            self.deliver[number](group)
