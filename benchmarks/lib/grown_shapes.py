"""Captures that grow in one direction: kernels, variants, blocks, SMs, values, instants, barriers, levels, ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.support.small_launches import BASE_NS, small_launches
from warplens.decode import decode
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.capture import VARIANT, Capture, Device, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.io import save_rank

_DEVICE = Device("H200", sm_count=132, clock_mhz=2000.0)
_WARPS = 8
Mark = Callable[[TrackWriter, int], object]
"""Writes one record of a track at a clock."""


def _launches(count: int, **shape: int) -> Capture:
    """Small launches without the truth about them, which no file can hold."""
    made = small_launches(count, **shape)
    return replace(made, launches=[replace(one, extra={}) for one in made.launches])


def kernels(count: int) -> Capture:
    """So many kernels with two regions of their own, each launched once."""
    made = _launches(count, blocks=2)
    launches = [
        replace(one, kernel=f"kernel_{at}", regions={number: f"{name}_{at}" for number, name in one.regions.items()})
        for at, one in enumerate(made.launches)
    ]
    return replace(made, launches=launches)


def variants(count: int) -> Capture:
    """So many variants of one kernel, each launched twice."""
    made = _launches(2 * count, blocks=2)
    launches = [replace(one, extra={VARIANT: {"BLOCK": at // 2}}) for at, one in enumerate(made.launches)]
    return replace(made, launches=launches)


def blocks(count: int) -> Capture:
    """One launch with so many blocks of four warps."""
    return _launches(1, blocks=count)


def sms(count: int) -> Capture:
    """One launch with a block of one warp on each of so many SMs."""
    tracks = [_track(8, _pairs(2), block=at, sm=at) for at in range(count)]
    return _capture(tracks, {1: "a", 2: "b"}, blocks=count, warps=1, device=replace(_DEVICE, sm_count=count))


def values(count: int) -> Capture:
    """So many values, on eight warps."""
    marks = [lambda writer, clock, at=at: writer.value(1 + at % 3, clock, float(at)) for at in range(count // _WARPS)]
    return _capture(
        [_track(2 * len(marks), marks, warp=warp) for warp in range(_WARPS)], {1: "loss", 2: "norm", 3: "rate"}
    )


def instants(count: int) -> Capture:
    """So many instants, on eight warps."""
    marks = [lambda writer, clock, at=at: writer.record(Kind.INSTANT, 1 + at % 3, clock) for at in range(count // 8)]
    return _capture([_track(len(marks), marks, warp=warp) for warp in range(_WARPS)], {1: "a", 2: "b", 3: "c"})


def barriers(count: int) -> Capture:
    """One warp that arrives at four mbarriers so many times, and three that wait for it."""

    def arrive(writer: TrackWriter, clock: int, turn: int) -> None:
        writer.record(Kind.BEGIN, 1, clock)
        writer.barrier(1, clock + 4, BarrierWord(Operation.ARRIVE, 64 + 8 * (turn % 4)))
        writer.record(Kind.END, 1, clock + 10)

    def wait(writer: TrackWriter, clock: int, turn: int) -> None:
        writer.record(Kind.BEGIN, 2, clock)
        writer.barrier(2, clock, BarrierWord(Operation.WAIT, 64 + 8 * (turn % 4), turn // 4 % 2))
        writer.record(Kind.END, 2, clock + 16)

    def marks(act: Callable[[TrackWriter, int, int], None]) -> list[Mark]:
        return [lambda writer, clock, turn=turn: act(writer, clock, turn) for turn in range(count)]

    tracks = [_track(4 * count, marks(wait if warp else arrive), warp=warp) for warp in range(4)]
    return _capture(tracks, {1: "produce", 2: "wait"}, warps=4)


def levels(count: int) -> Capture:
    """Eight warps whose regions are nested so deep."""
    depths = [*((Kind.BEGIN, at) for at in range(count)), *((Kind.END, at) for at in reversed(range(count)))]
    marks = [lambda writer, clock, kind=kind, at=at: writer.record(kind, 1 + at % 7, clock) for kind, at in depths]
    regions = {number: f"level_{number}" for number in range(1, 8)}
    return _capture([_track(len(marks), marks, warp=warp) for warp in range(_WARPS)], regions)


CAPTURES: dict[str, tuple[tuple[int, ...], Callable[[int], Capture]]] = {
    "kernels": ((250, 500, 1000), kernels),
    "variants": ((250, 500, 1000), variants),
    "blocks": ((5000, 10_000, 20_000), blocks),
    "SMs": ((1000, 2000, 4000), sms),
    "values": ((40_000, 80_000, 160_000), values),
    "instants": ((40_000, 80_000, 160_000), instants),
    "barriers": ((2500, 5000, 10_000), barriers),
    "levels": ((250, 500, 1000), levels),
    "regions": ((1250, 2500, 5000), lambda size: _launches(1, blocks=2, spans=size)),
    "launches": ((500, 1000, 2000), lambda size: _launches(size, blocks=2)),
}
"""The sizes and what makes a capture of a size, by what grows."""
RANKS = (16, 32, 64)


def ranks(count: int, folder: Path) -> Path:
    """The traces of so many ranks in one folder."""
    for rank in range(count):
        save_rank(decode(replace(_launches(20, blocks=4, seed=rank), rank=rank)), folder, rank)
    return folder


def _pairs(regions: int) -> list[Mark]:
    kinds = [(kind, region) for region in range(1, regions + 1) for kind in (Kind.BEGIN, Kind.END)]
    return [lambda writer, clock, one=one: writer.record(*one, clock) for one in kinds]


def _track(capacity: int, marks: Iterable[Mark], **place: int) -> np.ndarray:
    """A track with a record every 20 cycles, at 2 cycles per ns."""
    writer, clock = TrackWriter(capacity, **place), 1000
    writer.start(clock, BASE_NS)
    for mark in marks:
        clock += 20
        mark(writer, clock)
    writer.exit(clock + 100, BASE_NS + (clock - 900) // 2)
    return writer.to_bytes()


def _capture(
    tracks: list[np.ndarray],
    regions: dict[int, str],
    *,
    blocks: int = 1,
    warps: int = _WARPS,
    device: Device = _DEVICE,
) -> Capture:
    capacity = (len(tracks[0]) - 128) // 8
    raw, stride = np.concatenate(tracks), len(tracks[0])
    return Capture(
        [Launch("kernel", (blocks, 1, 1), (32 * warps, 1, 1), regions, capacity, raw, stride=stride)], device
    )
