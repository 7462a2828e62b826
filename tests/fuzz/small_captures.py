"""Small captures of every kind: records, values, rings, barriers and aggregates. Large ones break no other way."""

from __future__ import annotations

import random
from functools import cache

from tests.support.nested_ptx import NESTED
from tests.support.paths import GOLDEN
from tests.support.simulated_mbarrier import BarrierWorld, make_capture, pipeline
from tests.support.simulated_trace import traced
from tests.support.synthetic_capture import make_capture as make_synthetic
from warplens.record.capture import Capture, Device, read_capture
from warplens.simulate import GlobalMemory
from warplens.weave.weaving import Weaving

_GOLDEN = 8
"""This many of the smallest golden captures."""


@cache
def small_captures() -> list[Capture]:
    golden = sorted(GOLDEN.rglob("*.wlcap"), key=lambda file: file.stat().st_size)[:_GOLDEN]
    return [*map(read_capture, golden), make_synthetic(32, blocks=2, warps=2, sms=2), _barriers(), _aggregates()]


def _barriers() -> Capture:
    """A producer and two consumers, whose waits have edges."""
    chance = random.Random(1)
    counts, programs = pipeline(2, 5, 2, lambda: chance.randint(20, 400), lambda: chance.randint(300, 900))
    world = BarrierWorld(counts)
    world.run(programs, capacity=64)
    return make_capture([writer.to_bytes() for writer in world.writers], warps=len(world.writers), capacity=64)


def _aggregates() -> Capture:
    memory = GlobalMemory(1 << 20)
    out = memory.alloc(4)
    how = Weaving(mode="aggregate")
    _, launch = traced(NESTED, "nested", (2, 1, 1), (64, 1, 1), [out, 5], how, memory)
    return Capture([launch], Device(clock_mhz=1000.0))
