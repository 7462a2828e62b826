"""Captures of many small launches, whose true times are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, REGION_SHIFT, TRACK_MAGIC, Kind, TrackState, track_stride

SMS, WARPS = 132, 4
MHZ = 1755.0
BASE_NS = 1_763_000_000_000_000_000 // 32 * 32


def small_launches(
    count: int,
    *,
    blocks: int = 132,
    spans: int = 2,
    lasting_ns: int = 5000,
    slows_down: Sequence[int] = (),
    moving: bool = False,
    seed: int = 0,
) -> Capture:
    """Launches of one kernel on an H200 with 8 clocks at 1755 MHz: 4 warps per block, `spans` spans per warp.

    The clock of the launches in `slows_down` falls to 1300 MHz in mid-kernel. `moving` places each launch on other SMs.
    A launch's `extra` has the true start of each span.
    """
    rng = np.random.default_rng(seed)
    lead = rng.integers(0, 8, 8) * 400_000 + np.arange(8) * 3_400_000
    capacity = 2 * spans
    stride, tracks = track_stride(capacity), blocks * WARPS
    track = np.arange(tracks)
    kinds = np.tile([Kind.BEGIN, Kind.END], spans) | np.repeat(np.arange(spans) + 1, 2) << REGION_SHIFT
    regions = {number + 1: f"region_{number}" for number in range(spans)}
    launches = []
    for number in range(count):
        sm = (track // WARPS + (number * 5 if moving else 0)) % SMS
        begin = number * 10 * lasting_ns
        bend = begin + lasting_ns // 2 if number in slows_down else np.iinfo(np.int64).max
        start = begin + rng.integers(0, lasting_ns // 5, tracks)
        end = begin + lasting_ns + rng.integers(0, lasting_ns // 5, tracks)
        marks = start[:, None] + np.sort(rng.integers(10, lasting_ns * 3 // 4, (tracks, capacity)), axis=1)

        def clock(ns: np.ndarray, sm: np.ndarray, bend: int = bend) -> np.ndarray:
            cycles = np.minimum(ns, bend) * (MHZ / 1000) + np.maximum(ns - bend, 0) * 1.3
            return cycles.astype(np.int64) + lead[sm % 8]

        raw = np.zeros((tracks, stride), np.uint8)
        header = np.ndarray(tracks, HEADER, raw, strides=(stride,))
        header["magic"], header["state"], header["written"] = TRACK_MAGIC, TrackState.EXITED, capacity
        header["block"], header["warp"], header["sm"] = track // WARPS, track % WARPS, sm
        for name, ns in (("start", start), ("exit", end)):
            header[f"{name}_clock"] = clock(ns, sm)
            header[f"{name}_ns"] = BASE_NS + ns // 32 * 32
        words = np.empty((tracks, capacity, 2), "<u4")
        words[:, :, 0] = kinds
        words[:, :, 1] = clock(marks, sm[:, None]) & 0xFFFFFFFF
        raw[:, HEADER_BYTES : HEADER_BYTES + capacity * 8] = words.reshape(tracks, -1).view(np.uint8)
        extra = {"true_ns": BASE_NS + marks[:, ::2].ravel()}
        shape = (blocks, 1, 1), (32 * WARPS, 1, 1)
        launches.append(Launch("kernel", *shape, regions, capacity, raw.reshape(-1), extra=extra))
    return Capture(launches, Device("H200", sm_count=SMS, clock_mhz=1980.0))
