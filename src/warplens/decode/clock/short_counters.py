"""Make 64-bit clocks of a counter with few bits, with the real time that each wave also reads.

On gfx11 a wave counts cycles with 20 bits. The counter wraps after a quarter of a millisecond or more. The wave reads a
timer of 10 ns at its start, at its exit and at anchors. wrap_decisions.py decides how often the counter wrapped between
two such readings. Where that is unknown, the records from there on are not shown, and are counted.

The counters of different waves have no known relation. The clock of a wave therefore starts where the mean rate of the
launch puts the real time of its start. Differences within a wave are as counted. Places in ns are good to the timer and
to how far the rate of a wave differs from the mean, which the fit reports as its residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.wrap_decisions import decide_wraps, mean_rate, stretches_between
from warplens.decode.decoded_rows import Counter, Detail
from warplens.decode.numpy_decoder import read
from warplens.decode.track_records import TrackRecords
from warplens.decode.track_windows import TrackWindows, read_windows
from warplens.errors import CaptureError
from warplens.record.capture import BY_RATE, COUNTER_BITS, RATE_ERROR, Device, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, LIFETIME_BITS, SANE, SLOT_BYTES, TRACK_MAGIC, Kind, TrackState

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class WidenedLaunch:
    """A launch with 64-bit clocks. Of each track in `kept`, only so many slots are decided."""

    launch: Launch
    kept: dict[int, int]
    unreadable: int
    """Records with a clock of more bits than the counter has. Their slots are empty now."""
    emptied: int


def widen(launch: Launch, device: Device) -> WidenedLaunch | None:
    """The launch with 64-bit clocks; None if its clocks are not short."""
    bits = launch.extra.get(COUNTER_BITS)
    if bits is None:
        return None
    if not isinstance(bits, int) or not 8 <= bits <= 31:
        raise CaptureError(
            f"kernel {launch.kernel!r}", COUNTER_BITS, f"is {bits!r:.40}, allowed are 8..31", "capture again"
        )
    if launch.full != "stop":
        raise CaptureError(f"kernel {launch.kernel!r}", "full", "must be 'stop' with a short clock", "capture again")
    return _Widening(launch, device, bits).widened()


def cut(windows: TrackWindows, parts: Sequence[WidenedLaunch | None]) -> tuple[TrackWindows, list[Detail], int]:
    """The tracks up to where they are decided, a detail for each that ends early, and the records left out."""
    details, hidden = list[Detail](), 0
    if not any(part and part.kept for part in parts):
        return windows, details, hidden
    slots, written, lossy = windows.slots.copy(), windows.written.copy(), windows.lossy.copy()
    for number, part in enumerate(parts):
        if part is None or not part.kept:
            continue
        first, end = windows.bounds[number : number + 2].tolist()
        records = read(part.launch, windows.part(slice(first, end)))
        for at in range(first, end):
            kept = part.kept.get(int(windows.offset[at] - HEADER_BYTES) // part.launch.stride)
            if kept is None or kept >= slots[at]:
                continue
            count = int(((records.track == at - first) & (records.slot >= kept)).sum())
            written[at] -= slots[at] - kept
            slots[at], lossy[at] = kept, True
            hidden += count
            details.append(Detail(Counter.CLOCK_AMBIGUOUS, at, kept, -1, count))
    return replace(windows, slots=slots, written=written, lossy=lossy), details, hidden


class _Widening:
    def __init__(self, launch: Launch, device: Device, bits: int) -> None:
        self.launch, self.device, self.wrap = launch, device, 1 << bits
        self.raw = launch.raw.copy()
        self.headers = np.ndarray(launch.tracks, HEADER, self.raw, strides=(launch.stride,))
        self.start = self.headers["start_clock"].astype(np.int64)
        self.exit = self.headers["exit_clock"].astype(np.int64)
        self._pretend()
        self.windows = read_windows([replace(launch, raw=self.raw)], [device.clock_mhz])
        self.place = (self.windows.offset - HEADER_BYTES) // launch.stride

    def _pretend(self) -> None:
        """Give the headers clocks that other checks accept, so that the tracks can be read."""
        headers = self.headers
        exited = headers["state"] == TrackState.EXITED
        lived = headers["exit_ns"].astype(np.int64) - headers["start_ns"].astype(np.int64)
        good = (self.start < self.wrap) & (~exited | (self.exit < self.wrap))
        good &= (self.start >= 0) & (self.exit >= 0) & (lived < 1 << LIFETIME_BITS)
        headers["start_clock"] = np.where(good | (headers["magic"] != TRACK_MAGIC), 0, SANE)
        headers["exit_clock"] = np.where(exited & (lived >= 0), lived + self.wrap, 0)

    def widened(self) -> WidenedLaunch:
        windows, records = self.windows, read(replace(self.launch, raw=self.raw), self.windows)
        unreadable = records.low >= self.wrap
        emptied = self._empty(records, unreadable)
        records = _only(records, ~unreadable)
        point_track, low, ns, is_exit = self._points(records)
        stretches = stretches_between(point_track, low, ns, self.wrap)
        decided, wraps, by_rate = decide_wraps(stretches, self.wrap)
        rate, error = mean_rate(stretches.cycles + wraps * self.wrap, stretches.ns, decided, self.device.clock_mhz)

        steps = np.zeros(len(low), np.int64)
        steps[1:] = np.where(point_track[1:] == point_track[:-1], (low[1:] - low[:-1]) % self.wrap, 0)
        # A stretch with a wrap that is not in its sum has a single step.
        steps[stretches.end] += np.where(decided, wraps, 0) * self.wrap
        heads = np.searchsorted(point_track, np.arange(len(windows)))
        total = np.cumsum(steps)
        since = (windows.start_ns - windows.start_ns.min(initial=SANE)) * rate
        base = np.rint(np.minimum(since, float(SANE))).astype(np.int64)  # so late a start is invalid
        clock = total - total[heads][point_track] + base[point_track]

        undecided = np.full(len(windows), len(low), np.int64)
        np.minimum.at(undecided, stretches.track[~decided], stretches.begin[~decided])
        good = np.arange(len(low)) <= undecided[point_track]
        self._write(records, clock[self._record_points(point_track, is_exit)])
        last = np.maximum.reduceat(np.where(good, clock, 0), heads) if len(heads) else clock
        whole = undecided == len(low)
        lived = np.rint((windows.exit_ns - windows.start_ns) * rate).astype(np.int64)
        exits = np.where(whole, last, np.maximum(last, base + lived))
        self.headers["start_clock"][self.place] = base
        self.headers["exit_clock"][self.place] = np.where(windows.exited, exits, 0)

        slot = np.full(len(low), -1, np.int64)
        slot[self._record_points(point_track, is_exit)] = records.slot
        kept = {int(self.place[at]): int(slot[undecided[at]]) + 1 for at in np.flatnonzero(~whole).tolist()}
        noted = {COUNTER_BITS: self.launch.extra[COUNTER_BITS], BY_RATE: by_rate, RATE_ERROR: error}
        made = self.launch.noting(raw=self.raw, extra=noted)
        return WidenedLaunch(made, kept, int(unreadable.sum()), emptied)

    def _points(self, records: TrackRecords) -> tuple[Int64, Int64, Int64, Bool]:
        """The points of all tracks in order: track, counter, real time or -1, and whether it is an exit."""
        windows = self.windows
        tracks = np.arange(len(windows))
        done = np.flatnonzero(windows.exited)
        ns = np.where(records.has_payload, records.payload.view(np.int64), -1)
        ns = np.where((records.kind == Kind.ANCHOR) & (ns >= windows.start_ns[records.track]), ns, -1)
        ns = np.where(windows.exited[records.track] & (ns > windows.exit_ns[records.track]), -1, ns)
        track = np.concatenate((tracks, records.track, done))
        rank = np.concatenate((np.full(len(tracks), -1), np.arange(len(records.track)), np.full(len(done), SANE)))
        low = np.concatenate((self.start[self.place], records.low, self.exit[self.place][done]))
        times = np.concatenate((windows.start_ns, ns, windows.exit_ns[done]))
        order = np.lexsort((rank, track))
        return track[order], low[order], times[order], rank[order] == SANE

    def _record_points(self, track: Int64, is_exit: Bool) -> Bool:
        """Which points are records: not the first of their track, and not an exit."""
        return np.append(False, track[1:] == track[:-1])[: len(track)] & ~is_exit

    def _empty(self, records: TrackRecords, which: Bool) -> int:
        """Empty the slots of some records and of their payloads; return the number of slots."""
        paid = (
            which & ((records.kind == Kind.VALUE) | (records.kind == Kind.ANCHOR) | records.wide) & records.has_payload
        )
        at = np.concatenate((self._slots(records)[which], self._slots(records)[paid] - 1))
        self.raw.view(np.uint64)[at] = 0
        return len(at)

    def _write(self, records: TrackRecords, clock: Int64) -> None:
        self.raw.view(np.uint32)[2 * self._slots(records) + 1] = (clock & 0xFFFFFFFF).astype(np.uint32)

    def _slots(self, records: TrackRecords) -> Int64:
        at: Int64 = self.windows.offset[records.track] // SLOT_BYTES + records.slot
        return at


def _only(records: TrackRecords, which: Bool) -> TrackRecords:
    names = ("track", "slot", "kind", "region", "tag", "low", "payload", "has_payload", "wide", "exact")
    return replace(records, **{name: getattr(records, name)[which] for name in names})
