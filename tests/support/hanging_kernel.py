"""A kernel that does not end, without a GPU: its tracks as a device would have written them so far, and a driver whose
stream never gets past it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.support.contexts import Contexts
from warplens import session, simulate
from warplens.calibrate import record_cost
from warplens.driver import libcuda
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.capture import HANG, Capture, Device, Launch
from warplens.record.layout import HEADER, Kind
from warplens.record.running_tracks import HangRecord, pack_tracks
from warplens.record.track_writer import TrackWriter
from warplens.weave.weaving import Selection

REGIONS = {1: "wait full", 2: "produce", 3: "tile", 4: "loop"}
LOCATIONS = {1: "attn.py:42", 2: "attn.py:30"}
DEVICE = Device("fake", 0, 132, "9.0", 1000.0)
STREAM, CAPACITY = -7, 64
FULL, PRODUCER, CONSUMERS = 0x40, 4, 4
Write = Callable[[TrackWriter, int, int], None]
"""Writes what a warp has recorded, given the writer, the block and the warp."""


def track(block: int, warp: int, base_ns: int, write: Write, *, exits: bool = False) -> np.ndarray:
    """The bytes of one track; a cycle takes one ns."""
    writer = TrackWriter(CAPACITY, block=block, warp=warp, sm=block)
    writer.start(1000, base_ns)
    write(writer, block, warp)
    if exits:
        writer.exit(90_000, base_ns + 89_000)
    return writer.to_bytes()


def lost_arrival(writer: TrackWriter, block: int, warp: int) -> None:
    """Four consumers wait for the second phase of a barrier, at which the producer arrived only once."""
    if warp == PRODUCER:
        writer.record(Kind.BEGIN, 2, 2000)
        writer.barrier(2, 2100, BarrierWord(Operation.ARRIVE, FULL))
        writer.record(Kind.END, 2, 2200)
        writer.record(Kind.BEGIN, 2, 5000)
        writer.value(3, 5100, 17)
        return
    writer.record(Kind.BEGIN, 1, 1500)
    writer.barrier(1, 1500, BarrierWord(Operation.WAIT, FULL, 0))
    writer.record(Kind.END, 1, 2400)
    writer.record(Kind.BEGIN, 1, 3000)
    writer.barrier(1, 3000, BarrierWord(Operation.WAIT, FULL, 1))


def hung_capture(
    write: Write,
    *,
    blocks: int = 2,
    warps: int = 5,
    ended: Callable[[int, int], bool] = lambda block, warp: False,
    base_ns: int = 1_000_000,
    after_ns: int = 1_200_000_000,
) -> Capture:
    """A launch whose records were copied `after_ns` after its start, while the warps that have not `ended` ran."""
    places = [(block, warp) for block in range(blocks) for warp in range(warps)]
    tracks = [track(block, warp, base_ns, write, exits=ended(block, warp)) for block, warp in places]
    running = [place for place in places if not ended(*place)]
    record = HangRecord(pack_tracks(running), len(places) - len(running), 0, base_ns + after_ns, 1.5, "watch")
    launch = Launch(
        "attn", (blocks, 1, 1), (32 * warps, 1, 1), REGIONS, CAPACITY, np.concatenate(tracks),
        locations=LOCATIONS, extra={HANG: record.to_json()},
    )  # fmt: skip
    return Capture([launch], DEVICE)


class HangingDriver(Contexts):
    """Kernels of one stream end when `released` is set; copies on other streams go on meanwhile."""

    def __init__(self) -> None:
        self.space = simulate.GlobalMemory(128 << 20)
        self.released = threading.Event()
        self._streams: dict[int, int] = {}

    def device(self) -> Device:
        return DEVICE

    def mark(self, event: int, stream: int) -> None:
        self._streams[event] = stream

    def reached(self, event: int) -> bool:
        return self._streams.get(event) != STREAM or self.released.is_set()

    def wait(self, event: int) -> None:
        if self._streams.get(event) == STREAM:
            self.released.wait()


@contextmanager
def hanging_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDriver]:
    """Profiles find this driver; nothing is calibrated on it, and its kernels end with the block."""
    fake = HangingDriver()
    monkeypatch.setattr(libcuda, "driver", lambda: fake)
    monkeypatch.setattr(record_cost, "constants", dict)
    try:
        yield fake
    finally:
        fake.released.set()


def launch_hanging(
    driver: HangingDriver,
    write: Write = lost_arrival,
    *,
    blocks: int = 2,
    warps: int = 5,
    full: str = "stop",
    started: bool = True,
    store: str = "now",
    exits: bool = False,
) -> WovenLaunch:
    """Launch the kernel in the running session, and let it write what it writes before it hangs or `exits`."""
    kernel = WovenKernel(
        name="attn", warps=warps, regions=REGIONS, locations=LOCATIONS, slack=0, full=full, store=store,
        select=Selection(),
    )  # fmt: skip
    running = session.active()
    assert running is not None
    variant = running.variant("attn", "code", (blocks, 1, 1))
    running.variants.choose(variant)
    launch = running.lend(kernel, variant, (blocks, 1, 1), STREAM, None)
    assert isinstance(launch, WovenLaunch)
    with launch:
        for number in range(blocks * warps if started else 0):
            data = track(number // warps, number % warps, time.time_ns(), write, exits=exits)
            at = launch.address + (number << launch.shift)
            driver.space.write(at, data[: HEADER.itemsize])
            first = (1 << launch.shift) // 2 if full == "ring" else HEADER.itemsize
            driver.space.write(at + first, data[HEADER.itemsize :])
    return launch
