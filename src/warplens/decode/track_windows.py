"""Read track headers: which slots of each track hold records, and how many records were lost."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from warplens.record.capture import Launch
from warplens.record.layout import (
    HEADER,
    HEADER_BYTES,
    MAX_SM,
    MAX_WARPS,
    SLOT_BYTES,
    TRACK_MAGIC,
    TrackState,
)

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_SANE = 1 << 62
"""Clocks and times beyond this are invalid, and adding to them would overflow."""
_SLOWEST_NS, _PAUSE_NS = np.uint64(1000), np.uint64(10**9)
"""The longest plausible cycle, and the longest pause of the whole GPU; times at a slower rate would overflow."""
_LOW = 0xFFFFFFFF
"""The mask of the clock bits in a record."""


@dataclass(frozen=True)
class TrackWindows:
    """The readable tracks of one launch. `first` is the oldest slot of each track, `slots` the number kept.

    `lossy` tracks lost their latest records. `from_exit` tracks are rings that lost their oldest records, so their
    clock is unwrapped back from the exit.
    """

    offset: Int64
    first: Int64
    slots: Int64
    written: Int64
    block: Int64
    warp: Int64
    lane: Int64
    sm: Int64
    start_clock: Int64
    start_ns: Int64
    exit_clock: Int64
    exit_ns: Int64
    exited: Bool
    lossy: Bool
    from_exit: Bool
    rate: npt.NDArray[np.float64]
    unwritten: int
    invalid: int

    def __len__(self) -> int:
        return len(self.offset)

    def part(self, tracks: slice) -> TrackWindows:
        """A range of the tracks, without the counts of unwritten and invalid tracks."""
        arrays = {f.name: getattr(self, f.name)[tracks] for f in fields(self) if f.name not in ("unwritten", "invalid")}
        return TrackWindows(**arrays, unwritten=0, invalid=0)


def read_windows(launch: Launch, nominal_mhz: float) -> TrackWindows:
    """Read the track headers of a launch; unwritten tracks and those with invalid headers are only counted."""
    raw = np.ascontiguousarray(launch.raw)
    headers = np.ndarray(launch.tracks, HEADER, raw, strides=(launch.stride,))
    written_to = headers["magic"] != 0
    good = written_to & _plausible(headers, launch)
    track = np.flatnonzero(good)
    header = headers[track]
    exited = header["state"] == TrackState.EXITED
    offset = track.astype(np.int64) * launch.stride + HEADER_BYTES
    written = header["written"].astype(np.int64)
    first = np.zeros(len(track), np.int64)
    for i in np.flatnonzero(~exited):
        first[i], written[i] = _unfinished(raw, int(offset[i]), launch)
    slots = np.minimum(written, launch.capacity)
    lossy = written > slots
    ring = np.full(len(track), launch.full == "ring")
    wrapped = ring & lossy & exited
    start_clock, start_ns, exit_clock, exit_ns = (
        header[name].astype(np.int64) for name in ("start_clock", "start_ns", "exit_clock", "exit_ns")
    )
    if launch.capacity:
        first = np.where(wrapped, written % launch.capacity, first)
        last = _last_slot(raw, launch)[track]
        lived = np.where(exited, exit_clock - start_clock, _LOW)
        slots -= ~ring & lossy & ((last == 0) | ((last >> 32).astype(np.int64) - start_clock & _LOW > lived))
    elapsed = np.where(exited, exit_ns - start_ns, 0)
    measured = (exit_clock - start_clock) / np.maximum(elapsed, 1)
    return TrackWindows(
        offset=offset,
        first=first.astype(np.int64),
        slots=slots,
        written=written,
        block=header["block"].astype(np.int64),
        warp=header["warp"].astype(np.int64),
        lane=header["lane"].astype(np.int64),
        sm=header["sm"].astype(np.int64),
        start_clock=start_clock,
        start_ns=start_ns,
        exit_clock=np.where(exited, exit_clock, start_clock),
        exit_ns=np.where(exited, exit_ns, start_ns),
        exited=exited,
        lossy=lossy & ~ring,
        from_exit=wrapped,
        rate=np.where(elapsed > 0, measured, nominal_mhz / 1000.0).astype(np.float64),
        unwritten=int(len(headers) - written_to.sum()),
        invalid=int(written_to.sum() - good.sum()),
    )


def _plausible(headers: npt.NDArray[np.void], launch: Launch) -> Bool:
    exited = headers["state"] == TrackState.EXITED
    good = (headers["magic"] == TRACK_MAGIC) & (headers["state"] <= TrackState.EXITED)
    good &= (headers["block"] < launch.blocks) & (headers["warp"] < min(MAX_WARPS, launch.warps))
    good &= (headers["sm"] <= MAX_SM) & (headers["lane"] < 32)
    for name in ("start_clock", "start_ns", "exit_clock", "exit_ns"):
        good &= headers[name] < _SANE
    for name in ("clock", "ns"):
        good &= ~exited | (headers[f"exit_{name}"] >= headers[f"start_{name}"])
    cycles, ns = (headers[f"exit_{name}"] - headers[f"start_{name}"] for name in ("clock", "ns"))
    good &= ~exited | (ns < _PAUSE_NS) | ((ns - _PAUSE_NS) // _SLOWEST_NS <= cycles)
    return np.asarray(good)


def _last_slot(raw: npt.NDArray[np.uint8], launch: Launch) -> npt.NDArray[np.uint64]:
    """The last slot of each track.

    A value that did not fit leaves it empty or, where a block of marks is stored at once, with its payload, which is
    recognised because its upper half is not a clock within the track's lifetime.
    """
    at = HEADER_BYTES + (launch.capacity - 1) * SLOT_BYTES
    return np.asarray(np.ndarray(launch.tracks, "<u8", raw, at, (launch.stride,)))


def _unfinished(raw: npt.NDArray[np.uint8], offset: int, launch: Launch) -> tuple[int, int]:
    """The first slot and the slot count of a track without an exit, from the slots that are not zero."""
    slots = np.ndarray(launch.capacity, "<u8", raw, offset)
    used = np.flatnonzero(slots)
    if not len(used):
        return 0, 0
    count = int(used[-1]) + 1
    if launch.full == "ring" and count == launch.capacity:
        return _seam(slots), count
    return 0, count


def _seam(slots: npt.NDArray[np.uint64]) -> int:
    """The oldest slot of a ring without an exit: right after the newest, where the clock steps back the furthest."""
    clock = (slots >> np.uint64(32)).astype(np.uint32)
    step = (clock - np.roll(clock, 1)).astype(np.int32)
    return int(step.argmin()) if step.min() < 0 else 0
