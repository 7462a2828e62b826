"""The state of one batch of blocks: registers, lanes, shared and local memory, and every warp's clock.

All resident blocks form one batch, and one numpy operation covers all its lanes. A `Group` is a set of lanes that
execute together. Registers are never changed in place, so two registers may share one array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from warplens.simulate.cycle_clock import CycleClock
from warplens.simulate.global_memory import GlobalMemory
from warplens.simulate.numeric import UNSIGNED, Array

if TYPE_CHECKING:
    from warplens.simulate.async_barriers import Completion, Mbarrier

WARP = 32


class Group:
    """Lanes that execute together. `write` is None if the group contains all live lanes, so that no mask is needed."""

    __slots__ = ("_index", "all_live", "count", "full", "mask", "warps", "write")

    def __init__(self, mask: Array, count: int, all_live: bool, warps: Array | None = None) -> None:
        self.mask, self.count, self.all_live = mask, count, all_live
        self.full = count == len(mask)
        self.write = None if all_live else mask
        self._index: Array | None = None
        if warps is None and not self.full:
            warps = mask.reshape(-1, WARP).any(axis=1)
            if warps.all():
                warps = None
        self.warps = warps

    def restrict(self, predicate: Array) -> Group | None:
        """The lanes for which `predicate` is true; None if there are none, the group itself if it is true for all."""
        mask = self.mask & predicate
        count = int(np.count_nonzero(mask))
        if count == self.count:
            return self
        if count == 0:
            return None
        group = Group.__new__(Group)
        group.mask, group.count, group.all_live, group.full = mask, count, False, False
        group.write, group.warps, group._index = mask, self.warps, None
        return group

    @property
    def index(self) -> Array:
        """The indices of the lanes."""
        if self._index is None:
            self._index = np.flatnonzero(self.mask)
        return self._index


class State:
    """One batch of running blocks."""

    def __init__(
        self, memory: GlobalMemory, clock: CycleClock, blocks: Array, sms: Array, threads: int, shared: int
    ) -> None:
        self.memory, self.clock = memory, clock
        self.blocks, self.threads = blocks, threads
        self.warps_per_block = -(-threads // WARP)
        self.lanes_per_block = self.warps_per_block * WARP
        self.warps = len(blocks) * self.warps_per_block
        self.lanes = self.warps * WARP
        self.R: list[Array] = []
        self.lane = np.arange(self.lanes)
        self.live = self.lane % self.lanes_per_block < threads
        self.live_count = int(np.count_nonzero(self.live))
        self.sm = np.repeat(sms, self.warps_per_block)
        self.global_warp = (
            np.repeat(blocks * self.warps_per_block, self.warps_per_block)
            + np.arange(self.warps) % self.warps_per_block
        ).astype(np.uint64)
        self.cycles = np.zeros(self.warps, np.int64)
        self.finished = np.zeros(self.warps, np.int64)
        self.loads = np.zeros(self.warps, np.uint64)
        self.ready: list[Array] = []
        self.copies_open = np.zeros(self.warps, np.int64)
        self.copy_groups: list[Array] = []
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}
        """The mbarriers by block (its place in the batch) and shared address."""
        self.completions: list[Completion] = []
        """The phases of mbarriers that completed, in order."""
        self.shared_size = shared
        self.shared_stride = -(-max(shared, 16) // 16) * 16
        self._shared = np.zeros(len(blocks) * self.shared_stride, np.uint8)
        self.shared_base = (self.lane // self.lanes_per_block) * self.shared_stride
        self.local_size = self.local_stride = 0
        self._local = np.zeros(0, np.uint8)

    def give_local(self, size: int) -> None:
        """Allocate `size` bytes of local memory for every lane."""
        self.local_size, self.local_stride = size, -(-max(size, 16) // 16) * 16
        self._local = np.zeros(self.lanes * self.local_stride, np.uint8)

    def shared_words(self, width: int) -> Array:
        return self._shared.view(UNSIGNED[width])

    def local_words(self, width: int) -> Array:
        return self._local.view(UNSIGNED[width])

    def advance(self, group: Group, cycles: int) -> None:
        """Advance the clocks of the group's warps by `cycles`."""
        if group.warps is None:
            self.cycles += cycles
        else:
            self.cycles[group.warps] += cycles

    def wait_until(self, group: Group, ready: Array) -> None:
        """Stall the group's warps until `ready`."""
        if group.warps is None:
            np.maximum(self.cycles, ready, out=self.cycles)
        else:
            np.maximum(self.cycles, ready, out=self.cycles, where=group.warps)

    def per_lane(self, per_warp: Array) -> Array:
        return np.repeat(per_warp, WARP)

    def name(self, lane: int) -> str:
        """The name of a lane for messages: `block 3, thread 17`."""
        return f"block {int(self.blocks[lane // self.lanes_per_block])}, thread {lane % self.lanes_per_block}"


Step = Callable[[State, Group], None]
Reader = Callable[[list[Array]], Array]
