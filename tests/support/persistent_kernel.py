"""A kernel that runs for as long as a test likes, without a GPU: its warps record work items as time passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.hanging_kernel import STREAM, HangingDriver
from warplens import session
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.record.layout import HEADER_BYTES, Kind
from warplens.record.track_writer import TrackWriter
from warplens.threads import BackgroundThread
from warplens.weave.weaving import Selection, capacity_of

REGIONS = {1: "load", 2: "compute", 3: "queue length", 4: "persistent loop"}
LOCATIONS = {1: "megakernel.py:31", 2: "megakernel.py:40", 4: "megakernel.py:22"}
ITEM_NS = 10_000_000


@dataclass
class PersistentKernel:
    """Each warp takes a work item every `item_ns`: it loads for a quarter of that time and computes for half of it.
    Clocks run at `rate` cycles per ns, which is not the nominal rate."""

    driver: HangingDriver
    blocks: int = 2
    warps: int = 4
    full: str = "stop"
    item_ns: int = ITEM_NS
    rate: float = 0.85
    begin_ns: int = 0
    stuck: int | None = None
    """A block that stops in the middle of its third item."""
    name: str = "megakernel"
    uneven: float = 0.0
    """How much longer an item takes in each further block, as a share of its time."""
    launch: WovenLaunch = field(init=False)

    def start(self, begin_ns: int) -> PersistentKernel:
        """Launch it in the running session, with its warps starting at a time of the device's globaltimer."""
        kernel = WovenKernel(
            name=self.name, warps=self.warps, regions=REGIONS, locations=LOCATIONS, slack=0, full=self.full,
            store="now", select=Selection(),
        )  # fmt: skip
        running = session.active()
        assert running is not None
        grid = (self.blocks, 1, 1)
        variant = running.variant(self.name, "code", grid)
        running.variants.choose(variant)
        lent = running.lend(kernel, variant, grid, STREAM, None)
        assert isinstance(lent, WovenLaunch)
        self.launch, self.begin_ns = lent, begin_ns
        self._writers = [self._writer(at // self.warps, at % self.warps) for at in range(self.blocks * self.warps)]
        self._written = [0] * len(self._writers)
        with lent:
            self.advance(begin_ns)
        return self

    @property
    def capacity(self) -> int:
        return capacity_of(self.launch.shift, self.full, 0)

    def clock(self, sm: int, ns: int) -> int:
        """What the clock of an SM says at a time."""
        return (5 + sm) * (1 << 40) + int((ns - self.begin_ns) * self.rate)

    def _writer(self, block: int, warp: int) -> TrackWriter:
        writer = TrackWriter(self.capacity, block=block, warp=warp, sm=block, full=self.full)
        writer.start(self.clock(block, self.begin_ns), self.begin_ns)
        writer.record(Kind.BEGIN, 4, self.clock(block, self.begin_ns))
        return writer

    def steps(self, number: int) -> list[tuple[float, str, int]]:
        """What a warp records in its n-th item: when, in items, what, and the region."""
        return [
            (number, "begin", 1), (number + 0.25, "end", 1), (number + 0.25, "value", 3), (number + 0.3, "begin", 2),
            (number + 0.8, "end", 2),
        ]  # fmt: skip

    def advance(self, now_ns: int, *, torn: bool = False) -> None:
        """Let every warp record what it has done until now; with `torn`, payloads are stored without their record."""
        for at, writer in enumerate(self._writers):
            block = at // self.warps
            pace = self.item_ns * (1 + self.uneven * block)
            items = (now_ns - self.begin_ns) / pace
            limit = min(items, 2.5) if block == self.stuck else items
            while (step := self.steps(self._written[at] // 5)[self._written[at] % 5])[0] <= limit:
                ns = self.begin_ns + int(step[0] * pace)
                clock = self.clock(block, ns)
                if step[1] == "value":
                    writer.value(step[2], clock, self._written[at] // 5)
                else:
                    writer.record(Kind.BEGIN if step[1] == "begin" else Kind.END, step[2], clock)
                self._written[at] += 1
            self._store(at, writer, torn)

    def finish(self, now_ns: int) -> None:
        """Let the warps exit and the kernel end."""
        self.advance(now_ns)
        for at, writer in enumerate(self._writers):
            writer.exit(self.clock(at // self.warps, now_ns), now_ns)
            self._store(at, writer, torn=False)
        self.driver.released.set()

    def _store(self, at: int, writer: TrackWriter, torn: bool) -> None:
        data = writer.to_bytes()
        if torn:
            slots = data[HEADER_BYTES:].view(np.uint64)
            slots[writer._written % self.capacity] = 41  # a payload that looks like the record of a region
        address = self.launch.address + (at << self.launch.shift)
        first = (1 << self.launch.shift) // 2 if self.full == "ring" else HEADER_BYTES
        self.driver.space.write(address, data[:HEADER_BYTES])
        self.driver.space.write(address + first, data[HEADER_BYTES : HEADER_BYTES + self.capacity * 8])


@contextmanager
def running_kernel(driver: HangingDriver, *, every_s: float = 0.05, **shape: Any) -> Iterator[PersistentKernel]:
    """A kernel that runs beside the block, in the running session, until the block ends."""
    kernel = PersistentKernel(driver, **shape).start(time.time_ns())
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            kernel.advance(time.time_ns())

    thread = BackgroundThread(run, "kernel")
    thread.start()
    try:
        yield kernel
    finally:
        over.set()
        thread.join()
        kernel.finish(time.time_ns())
