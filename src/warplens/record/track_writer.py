"""Write a track from Python, byte for byte as device code does, for interpreters, imports and tests."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from warplens.record.barrier_words import BarrierWord
from warplens.record.layout import (
    HEADER,
    HEADER_BYTES,
    SLOT_BYTES,
    TRACK_MAGIC,
    WIDE_KINDS,
    Kind,
    TrackState,
    ValueType,
    track_stride,
    word0,
)

_MASK32 = 0xFFFFFFFF


class TrackWriter:
    """Writes the records of one warp. Clocks are 64-bit cycle counts; only `wide` records keep the high word."""

    def __init__(
        self,
        capacity: int,
        *,
        block: int = 0,
        warp: int = 0,
        sm: int = 0,
        lane: int = 0,
        full: str = "stop",
        wide: bool = False,
    ) -> None:
        self._slots = np.zeros(capacity, np.uint64)
        self._header = np.zeros((), HEADER)
        self._ring = full == "ring"
        self._written = 0
        self._wide = wide
        for name, value in {"magic": TRACK_MAGIC, "block": block, "warp": warp, "sm": sm, "lane": lane}.items():
            self._header[name] = value

    def start(self, clock: int, ns: int) -> None:
        self._header["start_clock"], self._header["start_ns"] = clock, ns

    def exit(self, clock: int, ns: int) -> None:
        self._header["exit_clock"], self._header["exit_ns"] = clock, ns
        self._header["state"] = TrackState.EXITED
        self._header["written"] = self._written

    def record(self, kind: Kind, region: int, clock: int, tag: int = 0) -> None:
        if self._wide and kind in WIDE_KINDS:
            self._put(clock, word0(Kind.ANCHOR, region, kind) | (clock & _MASK32) << 32)
            return
        self._clock(clock)
        self._put(word0(kind, region, tag) | (clock & _MASK32) << 32)

    def value(self, region: int, clock: int, value: float | int) -> None:
        real = isinstance(value, float)
        bits = struct.unpack("<Q", struct.pack("<d" if real else "<q", value))[0]
        kind = ValueType.F64 if real else ValueType.I64
        self._clock(clock)
        self._put(bits, word0(Kind.VALUE, region, kind) | (clock & _MASK32) << 32)

    def barrier(self, region: int, clock: int, word: BarrierWord) -> None:
        self._clock(clock)
        self._put(word.pack(), word0(Kind.VALUE, region, ValueType.BARRIER) | (clock & _MASK32) << 32)

    def anchor(self, clock: int, ns: int) -> None:
        self._put(ns, word0(Kind.ANCHOR) | (clock & _MASK32) << 32)

    def _clock(self, clock: int) -> None:
        if self._wide:
            self._put(clock, word0(Kind.ANCHOR, tag=Kind.ANCHOR) | (clock & _MASK32) << 32)

    def _put(self, *slots: int) -> None:
        capacity = len(self._slots)
        if self._written + len(slots) <= capacity or (self._ring and capacity):
            for i, slot in enumerate(slots):
                self._slots[(self._written + i) % capacity] = slot
        self._written += len(slots)

    def to_bytes(self) -> npt.NDArray[np.uint8]:
        track = np.zeros(track_stride(len(self._slots)), np.uint8)
        track[:HEADER_BYTES] = np.frombuffer(self._header.tobytes(), np.uint8)
        track[HEADER_BYTES : HEADER_BYTES + len(self._slots) * SLOT_BYTES] = self._slots.view(np.uint8)
        return track
