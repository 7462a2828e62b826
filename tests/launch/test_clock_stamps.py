"""Stamps of the device's globaltimer: what the kernel writes, and how the host reads it."""

from __future__ import annotations

import time

import numpy as np

from tests.support.stamping_driver import StampingDriver
from warplens import simulate
from warplens.launch import clock_stamps
from warplens.launch.clock_stamps import ClockStamps


def test_the_kernel_writes_the_globaltimer() -> None:
    memory = simulate.GlobalMemory(1 << 20)
    place = memory.alloc(16)
    result = simulate.run(clock_stamps._STAMP, "warplens_stamp", (1, 1, 1), (1, 1, 1), [place + 8], memory=memory)
    empty, stamp = memory.read(place, np.uint64, 2).tolist()
    assert empty == 0
    assert result.start_ns <= stamp <= result.end_ns


def test_a_sample_encloses_the_reading() -> None:
    driver = StampingDriver(offset_ns=5_000_000)
    sample = ClockStamps(driver).sample(time.monotonic_ns)
    assert sample is not None
    assert sample.before_ns <= sample.clock_ns - 5_000_000 <= sample.after_ns


def test_stamps_are_kept_after_the_memory_is_given_back() -> None:
    stamps = ClockStamps(StampingDriver())
    slot = stamps.stamp(7)
    value = stamps.read(slot)
    assert slot
    assert value
    stamps.release()
    assert stamps.read(slot) == value
    assert stamps.stamp(7) == 0
    assert stamps.read(0) == 0


def test_a_device_that_does_not_get_there_gives_no_sample(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(clock_stamps, "_MOST_PAUSES", 3)
    stamps = ClockStamps(StampingDriver(stuck=True))
    assert stamps.sample(time.monotonic_ns) is None
    slot = stamps.stamp(7)
    assert stamps.read(slot) == 0


def test_without_room_nothing_is_stamped() -> None:
    stamps = ClockStamps(StampingDriver())
    slots = [stamps.stamp(7) for _ in range(clock_stamps.SLOTS)]
    assert slots[-1] == 0
    assert 0 not in slots[:-1]
    stamps.give(slots[3])
    assert stamps.stamp(7) == slots[3]
