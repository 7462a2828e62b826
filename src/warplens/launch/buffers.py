"""The buffers of a profile's woven launches: how large, when to bring them home."""

from __future__ import annotations

import threading

from warplens.errors import WarplensError
from warplens.launch.collected_run import CollectedRun
from warplens.launch.memory import Buffer, Memory
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.options import Options
from warplens.record.capture import Dim3
from warplens.record.layout import MAX_SLOTS, SLOT_BYTES
from warplens.weave.weaving import MAX_SHIFT, MIN_SHIFT, shift_for

DEFAULT_BYTES = 128 << 20
DEFAULT_SHIFTS = (10, 20)
"""Unless told otherwise a launch gets at most 128 MiB, and a track between 1 KiB and 1 MiB."""
MOST_BYTES = 1 << 30
"""What a launch with automatic marks may get: how much they write shows only when they ran."""
FIRST_SHARE = 1 / 16
"""Of the memory that buffers may hold, what the first launch of a kernel with automatic marks may take of it."""


class Buffers:
    """Lend a buffer to each launch, and add the launch to the run; wait only where the device fills up."""

    def __init__(self, run: CollectedRun, options: Options, memory: Memory) -> None:
        self.run, self.options, self.memory = run, options, memory
        self._launches: list[WovenLaunch] = []
        self._held = 0
        """Bytes on the device."""
        self._first: dict[str, WovenLaunch] = {}
        self._lending = threading.RLock()

    def lend(self, kernel: WovenKernel, grid: Dim3, stream: int | None) -> int:
        """What the kernel takes as its buffer: the address, with log2 of a track's size in its low bits. 0 for none."""
        try:
            with self._lending:
                return self._lend(kernel, grid, stream)
        except MemoryError as error:
            problem = f"{error}; ask for fewer with records_per_warp=, warps= or blocks="
            if not kernel.auto or self.options.strict:
                raise WarplensError(f"kernel {kernel.name}: {problem}") from None
            self.run.note(kernel.name, f"runs unmarked: {problem}")
            return 0

    def _lend(self, kernel: WovenKernel, grid: Dim3, stream: int | None) -> int:
        blocks = kernel.select.blocks_of(grid[0] * grid[1] * grid[2])
        tracks = blocks * kernel.select.tracks_per_block(kernel.warps)
        if not tracks:
            return 0
        shift = self._shift(kernel, tracks)
        if self._held + (tracks << shift) > self.memory.budget():
            self._bring_home()
        buffer = self._allocate(tracks, shift, stream)
        address = buffer.align(1 << shift)
        device = self.run.other_device(self.memory.device_index(), self.memory.device)
        launch = WovenLaunch(kernel, grid, buffer, shift, device)
        self._first.setdefault(kernel.name, launch)
        self._launches.append(launch)
        self._held += buffer.nbytes
        self.run.add(launch)
        return address | shift

    def _shift(self, kernel: WovenKernel, tracks: int) -> int:
        records = self.options.records_per_warp
        wish = self.options.bytes_per_block
        if kernel.shared_slots:
            # The wish was for shared memory; a ring there and its copy in global memory have the same size.
            records = kernel.shared_slots if kernel.full == "ring" else records
        elif wish is not None:
            # A budget is not exceeded: the largest ring, or the most slots, that fit it.
            records = wish // SLOT_BYTES // kernel.select.tracks_per_block(kernel.warps)
            if kernel.full == "ring":
                records = 1 << max(0, records.bit_length() - 1)
        if records is not None:
            return min(MAX_SHIFT, shift_for(records, kernel.full, kernel.slack))
        low, high = DEFAULT_SHIFTS
        most = DEFAULT_BYTES
        if kernel.auto and kernel.full == "stop":
            most = max(most, min(MOST_BYTES, int(self.memory.budget() * FIRST_SHARE)))
        default = max(low, MIN_SHIFT, min(high, (most // tracks).bit_length() - 1))
        if not kernel.auto or kernel.full == "ring" or kernel.name not in self._first:
            return default
        # The first launch, which had room for what it could, says what the others need.
        written = int(self._first[kernel.name].collect().extra["most_written"])
        needed = max(MIN_SHIFT, min(MAX_SHIFT, shift_for(min(written + written // 8, MAX_SLOTS), "stop", kernel.slack)))
        return needed if tracks << needed <= MOST_BYTES else max(default, (MOST_BYTES // tracks).bit_length() - 1)

    def _allocate(self, tracks: int, shift: int, stream: int | None) -> Buffer:
        size = (tracks + 1) << shift
        try:
            try:
                return self.memory.allocate(size, stream)
            except MemoryError:
                if not self._held:
                    raise
            self._bring_home()
            return self.memory.allocate(size, stream)
        except MemoryError as error:
            raise MemoryError(f"no device memory for {tracks} tracks of {1 << shift} bytes ({error})") from None

    def _bring_home(self) -> None:
        """Collect earlier launches when their buffers fill the device; the only place that waits."""
        for launch in self._launches:
            launch.collect()
        self._launches.clear()
        self._held = 0
