"""A capture of any size, made of numpy: `outer{ load, mma{ inner } }` on every warp of a 132-SM device."""

from __future__ import annotations

import numpy as np

from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import (
    HEADER,
    HEADER_BYTES,
    RECORD,
    SLOT_BYTES,
    TRACK_MAGIC,
    Kind,
    TrackState,
    track_stride,
    word0,
)

REGIONS = {1: "outer", 2: "load", 3: "mma", 4: "inner"}
_PATTERN = [(1, 1), (1, 2), (2, 2), (1, 3), (1, 4), (2, 4), (2, 3), (2, 1)]
_GHZ = 1.755


def make_capture(spans: int, blocks: int = 528, warps: int = 4, sms: int = 132, seed: int = 0) -> Capture:
    """About `spans` spans, nested three deep, with clocks millions of cycles apart that wrap on the way."""
    rng = np.random.default_rng(seed)
    tracks = blocks * warps
    repeats = max(1, round(spans / tracks / (len(_PATTERN) // 2)))
    capacity = repeats * len(_PATTERN)
    stride = track_stride(capacity)
    raw = np.zeros(tracks * stride, np.uint8)
    header = np.ndarray(tracks, HEADER, raw, strides=(stride,))
    records = np.ndarray((tracks, capacity), RECORD, raw, HEADER_BYTES, (stride, SLOT_BYTES))

    elapsed = np.cumsum(rng.integers(5, 400, (tracks, capacity)), axis=1)
    number = np.arange(tracks)
    header["magic"], header["state"], header["written"] = TRACK_MAGIC, TrackState.EXITED, capacity
    header["block"], header["warp"], header["sm"] = number // warps, number % warps, number // warps % sms
    start = ((1 << 32) - 100_000 + rng.integers(0, 3_400_000, sms))[header["sm"]]
    header["start_clock"], header["exit_clock"] = start, start + elapsed[:, -1] + 200
    header["start_ns"] = 1_763_000_000_000_000_000 // 32 * 32
    lifetime = (header["exit_clock"] - header["start_clock"]) / _GHZ
    header["exit_ns"] = header["start_ns"] + (lifetime // 32 * 32).astype(np.uint64)
    records["word0"] = np.tile(np.array([word0(Kind(kind), region) for kind, region in _PATTERN], np.uint32), repeats)
    records["clock"] = (start[:, None] + 100 + elapsed) & 0xFFFFFFFF
    launch = Launch("synthetic", (blocks, 1, 1), (32 * warps, 1, 1), REGIONS, capacity, raw)
    return Capture([launch], Device("synthetic", 0, sms, "9.0", 1000 * _GHZ))
