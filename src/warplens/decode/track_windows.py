"""Read track headers: which slots of each track hold records, and how many records were lost."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.native import address, load, pointer
from warplens.record.capture import Launch
from warplens.record.layout import (
    HEADER,
    HEADER_BYTES,
    LIFETIME_BITS,
    MAX_SM,
    MAX_WARPS,
    PAUSE_NS,
    SANE,
    SLOT_BYTES,
    SLOWEST_NS,
    TRACK_MAGIC,
    TrackState,
)

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_LIFETIME = np.uint64(LIFETIME_BITS)
_LOW = 0xFFFFFFFF
"""The mask of the clock bits in a record."""
_TRACKS_AT_ONCE = 1 << 14
_MOST_THREADS = 16
_FIELDS = (
    "magic", "block", "warp", "lane", "sm", "written", "state", "start_clock", "start_ns", "exit_clock", "exit_ns",
)  # fmt: skip


_HEAD = np.dtype(
    {
        "names": _FIELDS,
        "formats": [HEADER[name] for name in _FIELDS],
        "offsets": [HEADER.fields[name][1] for name in _FIELDS] if HEADER.fields else [],
        "itemsize": 64,
    }
)
"""The part of a header that has fields."""
_LAUNCH_HEAD = np.dtype(
    [(name, np.int64) for name in ("raw", "stride", "tracks", "capacity", "blocks", "warps", "ring")]
    + [("rate", np.float64)]
)
"""What native/decode.c takes of a launch to read its headers."""
_NATIVE_ORDER = (
    "offset", "slots", "written", "block", "warp", "lane", "sm", "start_clock", "start_ns", "exit_clock", "exit_ns",
    "first", "exited", "lossy", "from_exit", "rate",
)  # fmt: skip
"""The columns in the order in which native/decode.c takes them."""


@dataclass(frozen=True)
class TrackWindows:
    """The readable tracks of all launches, in launch order. Those of launch i are `bounds[i]` to `bounds[i + 1]`.

    `first` is the oldest slot of each track, `slots` the number kept, and `offset` the place of slot 0 in the buffer of
    the track's launch. `lossy` tracks lost their latest records. `from_exit` tracks are rings that lost their oldest
    records, so their clock is unwrapped back from the exit.
    """

    bounds: Int64
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
        """A range of the tracks, without their launches and the counts of unwritten and invalid tracks."""
        arrays = {name: getattr(self, name)[tracks] for name in PER_TRACK}
        return TrackWindows(**arrays, bounds=np.empty(0, np.int64), unwritten=0, invalid=0)

    @property
    def latest_clock(self) -> Int64:
        """The latest clock that a record of each track may have."""
        return np.where(self.exited, self.exit_clock, self.start_clock + (1 << LIFETIME_BITS))

    @cached_property
    def launch(self) -> Int64:
        """The number of each track's launch."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


PER_TRACK = tuple(f.name for f in fields(TrackWindows) if f.name not in ("bounds", "unwritten", "invalid"))


def read_windows(launches: Sequence[Launch], nominal_mhz: Sequence[float]) -> TrackWindows:
    """Read the track headers of all launches; unwritten tracks and those with invalid headers are only counted."""
    spans = list(_cache_sized(launches))
    if len(spans) == 1:
        return _read_whole(launches, nominal_mhz, spans, map) or _read(launches, nominal_mhz)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS, len(spans))) as pool:
        if (whole := _read_whole(launches, nominal_mhz, spans, pool.map)) is not None:
            return whole
        parts = [launches[span] for span in spans], [nominal_mhz[span] for span in spans]
        groups = list(pool.map(_read, *parts))
        joined = pool.map(lambda name: np.concatenate([getattr(group, name) for group in groups]), PER_TRACK)
        arrays = dict(zip(PER_TRACK, joined, strict=True))
    tracks = np.concatenate([np.diff(group.bounds) for group in groups])
    return TrackWindows(
        **arrays,
        bounds=np.append(0, np.cumsum(tracks)).astype(np.int64),
        unwritten=sum(group.unwritten for group in groups),
        invalid=sum(group.invalid for group in groups),
    )


def _cache_sized(launches: Sequence[Launch]) -> Iterator[slice]:
    """Ranges of launches whose headers fit in the CPU cache together; one empty range if there is no launch."""
    begin = tracks = 0
    for number, launch in enumerate(launches):
        if tracks and tracks + launch.tracks > _TRACKS_AT_ONCE:
            yield slice(begin, number)
            begin, tracks = number, 0
        tracks += launch.tracks
    yield slice(begin, len(launches))


def _read_whole(
    launches: Sequence[Launch], nominal_mhz: Sequence[float], spans: Sequence[slice], each: Callable[..., Iterable[int]]
) -> TrackWindows | None:
    """Read the headers in C, a span of launches per call. None where that is not possible: there is no compiler, or a
    track is unwritten, invalid or without an exit."""
    library = load()
    if library is None or not all(one.raw.flags.c_contiguous for one in launches):
        return None
    heads = np.array(
        [
            (address(one.raw), one.stride, one.tracks, one.capacity, one.blocks, one.warps, one.full == "ring", mhz)
            for one, mhz in zip(launches, nominal_mhz, strict=True)
        ],
        _LAUNCH_HEAD,
    )
    heads["rate"] /= 1000.0
    bounds = np.append(0, np.cumsum(heads["tracks"]))
    kinds = {"exited": np.bool_, "lossy": np.bool_, "from_exit": np.bool_, "rate": np.float64}
    columns = {name: np.empty(bounds[-1], kinds.get(name, np.int64)) for name in PER_TRACK}
    places = (ctypes.c_void_p * len(_NATIVE_ORDER))(*(address(columns[name]) for name in _NATIVE_ORDER))

    def read(span: slice) -> int:
        part = heads[span]
        first = ctypes.c_int64(int(bounds[span.start]))
        return int(library.wl_windows(pointer(part), ctypes.c_int64(len(part)), first, places))

    if any(list(each(read, spans))):
        return None
    return TrackWindows(**columns, bounds=bounds, unwritten=0, invalid=0)


def _read(launches: Sequence[Launch], nominal_mhz: Sequence[float]) -> TrackWindows:
    raws = [np.ascontiguousarray(launch.raw) for launch in launches]
    tracks = np.array([launch.tracks for launch in launches], np.int64)
    header = _header_columns(launches, raws, int(tracks.sum()))
    launch_of = np.repeat(np.arange(len(launches)), tracks)

    def spread(values: Iterable[Any], kind: Any = np.int64) -> npt.NDArray[Any]:
        return np.fromiter(values, kind, len(launches))[launch_of]

    written_to = header["magic"] != 0
    good = written_to & _plausible(
        header, spread(one.blocks for one in launches), spread(one.warps for one in launches)
    )
    offset = np.arange(len(launch_of)) - np.repeat(np.cumsum(tracks) - tracks, tracks)
    offset = offset * spread(one.stride for one in launches) + HEADER_BYTES
    unwritten, invalid = int(len(good) - written_to.sum()), int(written_to.sum() - good.sum())
    if not good.all():
        header = {name: column[good] for name, column in header.items()}
        offset, launch_of = offset[good], launch_of[good]
    exited = header["state"] == TrackState.EXITED
    written = header["written"].astype(np.int64)
    first = np.zeros(len(offset), np.int64)
    for i in np.flatnonzero(~exited).tolist():
        of = int(launch_of[i])
        first[i], written[i] = _unfinished(raws[of], int(offset[i]), launches[of])
    capacity = spread(one.capacity for one in launches)
    slots = np.minimum(written, capacity)
    lossy = written > slots
    ring = spread((one.full == "ring" for one in launches), bool)
    wrapped = ring & lossy & exited
    start_clock, start_ns, exit_clock, exit_ns = (
        header[name].view(np.int64) for name in ("start_clock", "start_ns", "exit_clock", "exit_ns")
    )
    if wrapped.any():
        first = np.where(wrapped, written % np.maximum(capacity, 1), first)
    if (cut := np.flatnonzero(~ring & lossy & (capacity > 0))).size:
        last = header["last"][cut]
        lived = np.where(exited, exit_clock - start_clock, _LOW)[cut]
        slots[cut] -= (last == 0) | ((last >> np.uint64(32)).astype(np.int64) - start_clock[cut] & _LOW > lived)
    elapsed = np.where(exited, exit_ns - start_ns, 0)
    measured = (exit_clock - start_clock) / np.maximum(elapsed, 1)
    return TrackWindows(
        bounds=np.append(0, np.cumsum(np.bincount(launch_of, minlength=len(launches)))),
        offset=offset,
        first=first,
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
        rate=np.where(elapsed > 0, measured, spread(nominal_mhz, np.float64) / 1000.0),
        unwritten=unwritten,
        invalid=invalid,
    )


def _header_columns(
    launches: Sequence[Launch], raws: Sequence[npt.NDArray[np.uint8]], tracks: int
) -> dict[str, npt.NDArray[Any]]:
    """The header fields of all tracks as columns, and in `last` the last slot of each track.

    A value that did not fit leaves the last slot empty or, where a block of marks is stored at once, with its payload,
    which is recognised because its upper half is not a clock within the track's lifetime.
    """
    heads, last = np.empty(tracks, _HEAD), np.zeros(tracks, np.uint64)
    begin = 0
    for launch, raw in zip(launches, raws, strict=True):
        part = slice(begin, begin + launch.tracks)
        heads[part] = np.ndarray(launch.tracks, _HEAD, raw, strides=(launch.stride,))
        if launch.capacity and launch.tracks:
            at = HEADER_BYTES + (launch.capacity - 1) * SLOT_BYTES
            last[part] = np.ndarray(launch.tracks, "<u8", raw, at, (launch.stride,))
        begin = part.stop
    return {name: np.ascontiguousarray(heads[name]) for name in _FIELDS} | {"last": last}


def _plausible(header: Mapping[str, npt.NDArray[Any]], blocks: Int64, warps: Int64) -> Bool:
    exited = header["state"] == TrackState.EXITED
    good = (header["magic"] == TRACK_MAGIC) & (header["state"] <= TrackState.EXITED)
    good &= (header["block"] < blocks) & (header["warp"] < np.minimum(MAX_WARPS, warps))
    good &= (header["sm"] <= MAX_SM) & (header["lane"] < 32)
    for name in ("start_clock", "start_ns", "exit_clock", "exit_ns"):
        good &= header[name] < SANE
    for name in ("clock", "ns"):
        good &= ~exited | (header[f"exit_{name}"] >= header[f"start_{name}"])
    cycles, ns = (header[f"exit_{name}"] - header[f"start_{name}"] for name in ("clock", "ns"))
    good &= ~exited | ((cycles >> _LIFETIME == 0) & (ns >> _LIFETIME == 0))
    return np.asarray(good & (~exited | plausible_pace(cycles, ns)))


def plausible_pace(cycles: npt.NDArray[Any], ns: npt.NDArray[Any]) -> Bool:
    """Whether a clock can have counted so few cycles in this time."""
    return np.asarray((ns < PAUSE_NS) | ((ns - PAUSE_NS) // SLOWEST_NS <= cycles))


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
