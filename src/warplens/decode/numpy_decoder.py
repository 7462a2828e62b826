"""The decoder in numpy, for machines without a C compiler. Tests check that it gives the same rows as native/decode.c.

Tracks whose regions nest cleanly, which is nearly all of them, are decoded together in vectorised steps. A track with a
malformed end, asynchronous marks or very deep nesting is decoded record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.anchor_fit import ClockLines
from warplens.decode.damaged_clocks import BACKWARD, DROPPED, IGNORED, WRAP, anchor_time, track_clocks
from warplens.decode.decoded_rows import (
    BARRIER_VALUE,
    DAMAGED,
    INSTANT,
    MAX_DETAILS,
    SPAN,
    VALUE,
    Counter,
    DecodedRows,
    Detail,
    RegionTable,
    RowPlan,
)
from warplens.decode.track_records import TrackRecords
from warplens.decode.track_walk import walk_track
from warplens.decode.track_windows import Bool, Int64, TrackWindows
from warplens.record.capture import Launch
from warplens.record.layout import (
    CLOCK_BITS,
    KIND_BITS,
    MAX_REGION,
    REGION_SHIFT,
    SLOT_BYTES,
    TAG_BITS,
    TAG_SHIFT,
    WIDE_KINDS,
    Kind,
    ValueType,
)

_DEEP = 200
_CHUNK = 1 << 16
_CLOCK = 1 << KIND_BITS
"""The kind of an anchor that holds the 64-bit clock of the next record."""
_WIDE_TAG = np.zeros(1 << TAG_BITS, bool)
_WIDE_TAG[[*WIDE_KINDS, Kind.ANCHOR]] = True
_ROW_KIND = np.full(IGNORED + 1, -1, np.int8)
_ROW_KIND[[Kind.BEGIN, Kind.ASYNC_BEGIN, Kind.INSTANT, Kind.VALUE]] = SPAN, SPAN, INSTANT, VALUE
_ROW_KIND[DROPPED] = DAMAGED


class NumpyDecoder:
    def count(self, launches: Sequence[Launch], windows: TrackWindows) -> RowPlan:
        """Plan the rows and anchors of each track."""
        rows: list[npt.ArrayLike] = [[0]]
        anchors: list[npt.ArrayLike] = [[0]]
        with_payload: list[Bool] = []
        for number, part in _chunks(windows):
            launch = launches[number]
            view = windows.part(part)
            records = read(launch, view)
            tracks = len(view)
            rows.append(np.bincount(records.track[_ROW_KIND[records.kind] >= 0], minlength=tracks))
            is_anchor = records.kind == Kind.ANCHOR
            anchors.append(np.bincount(records.track[is_anchor], minlength=tracks))
            paid = is_anchor | records.wide | (records.kind == Kind.VALUE)
            with_payload.append(np.bincount(records.track[paid], minlength=tracks) > 0)
        return RowPlan(
            np.cumsum(np.concatenate(rows)).astype(np.int64),
            np.cumsum(np.concatenate(anchors)).astype(np.int64),
            np.concatenate(with_payload or [np.empty(0, bool)]).astype(np.uint8),
        )

    def fill(
        self,
        launches: Sequence[Launch],
        windows: TrackWindows,
        plan: RowPlan,
        regions: Sequence[RegionTable],
        out: DecodedRows,
    ) -> list[Detail]:
        """Decode every track into its rows, with a table of regions per launch; return the first malformed records."""
        details: list[Detail] = []
        for number, part in _chunks(windows):
            ends = slice(part.start, part.stop + 1)
            inner = RowPlan(plan.row_start[ends], plan.anchor_start[ends], plan.holds[part])
            found = _fill(launches[number], windows.part(part), inner, regions[number], out)
            details += [replace(detail, track=detail.track + part.start) for detail in found]
        return details[:MAX_DETAILS]

    def place(
        self, row_start: Int64, at: Int64, lines: ClockLines, zero: int, rows: DecodedRows
    ) -> tuple[Int64, Int64]:
        clocks, ns, slopes = lines.knot_clock, lines.knot_ns - zero, lines.slope
        segment_start, segment_count = lines.first[at], lines.count[at]
        counts = np.diff(row_start)
        segment = np.repeat(segment_start, counts)
        end = rows.start + rows.duration
        start_ns = _on_line(rows.start, segment, clocks, ns, slopes)
        end_ns = _on_line(end, segment, clocks, ns, slopes)
        for first, count in {(int(s), int(c)) for s, c in zip(segment_start, segment_count, strict=True) if c > 1}:
            of = np.flatnonzero(np.repeat(segment_start == first, counts))
            inner = clocks[first : first + count]
            for out, edge in ((start_ns, rows.start[of]), (end_ns, end[of])):
                at = first + np.maximum(np.searchsorted(inner, edge, side="right") - 1, 0)
                out[of] = _on_line(edge, at, clocks, ns, slopes)
        return start_ns, end_ns - start_ns

    def times(self, lines: ClockLines, at: Int64, clock: Int64) -> npt.NDArray[np.float64]:
        return lines.at_line(at, clock)

    def earliest(self, lines: ClockLines, at: Int64, row_start: Int64, rows: DecodedRows) -> float | None:
        used = np.flatnonzero(np.diff(row_start))
        return float(self.times(lines, at[used], rows.start[row_start[used]]).min()) if len(used) else None

    def inside(self, plan: RowPlan, start_clock: Int64, lived: Int64, rows: DecodedRows) -> Int64:
        first, last = int(plan.row_start[0]), int(plan.row_start[-1])
        outer = (rows.parent[first:last] < 0) & (rows.kind[first:last] == SPAN)
        at = np.flatnonzero(outer) + first
        track = np.searchsorted(plan.row_start, at, side="right") - 1
        begin = np.clip(rows.start[at] - start_clock[track], 0, lived[track])
        end = np.clip(begin + rows.duration[at], 0, lived[track])
        # Place the tracks end to end on one axis, so that one running maximum gives the end of earlier spans.
        place = np.cumsum(lived) - lived
        begin, end = begin + place[track], end + place[track]
        before = np.concatenate([[0], np.maximum.accumulate(end)[:-1]]) if len(end) else end
        new = np.maximum(end - np.maximum(begin, before), 0)
        return np.bincount(track, new, minlength=len(lived)).astype(np.int64)  # a double represents these sums exactly


def _chunks(windows: TrackWindows) -> Iterator[tuple[int, slice]]:
    """Launches with ranges of their tracks whose records fit in the CPU cache, which is several times faster."""
    for number, (first, last) in enumerate(pairwise(windows.bounds.tolist())):
        slots = np.cumsum(windows.slots[first:last])
        cuts = (np.flatnonzero(np.diff(slots // _CHUNK, prepend=0)) + first).tolist()
        for begin, end in pairwise([first, *cuts, last]):
            if end > begin:
                yield number, slice(begin, end)


def _fill(launch: Launch, windows: TrackWindows, plan: RowPlan, regions: RegionTable, out: DecodedRows) -> list[Detail]:
    records = read(launch, windows)
    out.counters[Counter.EMPTY_SLOTS] += records.empty
    records, clock, damaged = _clocks(records, windows, plan, out)
    _plain_columns(records, clock, plan, regions, out)
    last = _last_clock(records, clock, windows, out)
    careful = _needs_walk(records, len(windows)) | damaged
    careful |= _pair_nested(records, clock, last, careful, plan, out)
    details: list[Detail] = []
    bounds = np.searchsorted(records.track, np.arange(len(windows) + 1))
    for track in np.flatnonzero(careful):
        part = slice(int(bounds[track]), int(bounds[track + 1]))
        details += walk_track(records, clock, part, int(track), int(last[track]), int(plan.row_start[track]), out)
    return details


def _on_line(
    clock: Int64, segment: Int64, clocks: Int64, ns: npt.NDArray[np.float64], slopes: npt.NDArray[np.float64]
) -> Int64:
    with np.errstate(invalid="ignore"):  # invalid clocks overflow here exactly as they do in C
        return np.floor(ns[segment] + (clock - clocks[segment]) * slopes[segment] + 0.5).astype(np.int64)


def read(launch: Launch, windows: TrackWindows) -> TrackRecords:
    """Read all records of a launch in track order, and attach the payloads."""
    ends = np.cumsum(windows.slots)
    track = np.repeat(np.arange(len(windows)), windows.slots)
    slot = np.arange(len(track)) - np.repeat(ends - windows.slots, windows.slots)
    capacity = max(launch.capacity, 1)
    at = windows.offset[track] // SLOT_BYTES + (windows.first[track] + slot) % capacity
    words = np.ascontiguousarray(launch.raw).view("<u8")[at]
    word0 = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
    kind = word0 & ((1 << KIND_BITS) - 1)
    is_payload = _payload_slots(track, kind)
    real = ~is_payload & (kind != Kind.EMPTY)
    owner = np.flatnonzero(real)
    before = np.maximum(owner - 1, 0)
    payload = words[before] if len(words) else words
    has_payload = is_payload[before] & (owner > 0) if len(words) else is_payload
    tag = word0[real] >> TAG_SHIFT
    kinds = kind[real]
    wide = kinds == Kind.ANCHOR
    exact = np.zeros(len(wide), bool)
    if wide.any():
        wide &= _WIDE_TAG[tag]
        exact = wide & has_payload & (payload < np.uint64(1 << CLOCK_BITS))
        kinds = np.where(wide, np.where(tag == Kind.ANCHOR, _CLOCK, tag), kinds)
    return TrackRecords(
        track=track[real],
        slot=slot[real],
        kind=kinds,
        region=(word0[real] >> REGION_SHIFT) & MAX_REGION,
        tag=tag,
        low=(words[real] >> np.uint64(32)).astype(np.int64),
        payload=payload,
        has_payload=has_payload,
        wide=wide,
        exact=np.where(exact, payload, np.uint64(0)).astype(np.int64) - ~exact,
        empty=int((~is_payload & (kind == Kind.EMPTY)).sum()),
    )


def _payload_slots(track: Int64, kind: Int64) -> Bool:
    """Find payload slots: walking back from a track's newest slot, each value or anchor claims the slot before it."""
    looks = (kind == Kind.VALUE) | (kind == Kind.ANCHOR)
    if not looks.any():
        return np.zeros(len(kind), bool)
    same_track_next = np.append(track[1:] == track[:-1], False)
    run_ends = np.flatnonzero(looks & ~(np.append(looks[1:], False) & same_track_next))
    index = np.flatnonzero(looks)
    claims = np.zeros(len(kind), bool)
    claims[index] = (run_ends[np.searchsorted(run_ends, index)] - index) % 2 == 0
    return np.asarray(np.append(claims[1:], False) & same_track_next)


def _clocks(
    records: TrackRecords, windows: TrackWindows, plan: RowPlan, out: DecodedRows
) -> tuple[TrackRecords, Int64, Bool]:
    """The 64-bit clock of each record, and which tracks contain records with a clock outside the track's lifetime.

    Those records are returned with the kind DROPPED or IGNORED.
    """
    clock, backward, head = _unwrap(records, windows)
    limit = windows.latest_clock

    def outside() -> Bool:
        return (clock < windows.start_clock[records.track]) | (clock > limit[records.track])

    damaged = np.zeros(len(windows), bool)
    damaged[records.track[outside()]] = True
    _settle_exact(records, clock, head)
    anchors = _settle_anchors(records, clock, windows, plan, out)
    backward |= (records.exact >= 0) & (np.arange(len(clock)) > head) & (clock < np.roll(clock, 1))
    damaged[records.track[outside()]] = True
    out.counters[Counter.TORN_PAYLOADS] += int((records.wide & (records.exact < 0)).sum())
    out.counters[Counter.TORN_PAYLOADS] += int((~records.has_payload[anchors]).sum())
    kinds = records.kind.copy()
    bounds = np.searchsorted(records.track, np.arange(len(windows) + 1))
    for track in np.flatnonzero(damaged).tolist():
        part = slice(int(bounds[track]), int(bounds[track + 1]))
        found = track_clocks(records, part, windows, track)
        clock[part], backward[part] = found.clock, found.backward
        hurt = np.flatnonzero(found.damaged) + part.start
        kinds[hurt] = np.where(_ROW_KIND[records.kind[hurt]] >= 0, DROPPED, IGNORED)
        of = slice(int(plan.anchor_start[track]), int(plan.anchor_start[track + 1]))
        out.anchor_clock[of], out.anchor_ns[of] = found.anchor_clock, found.anchor_ns
        out.counters[Counter.DAMAGED_RECORDS] += len(hurt)
    out.counters[Counter.CLOCK_BACKWARD] += int(backward.sum())
    return replace(records, kind=kinds), clock, damaged


def _unwrap(records: TrackRecords, windows: TrackWindows) -> tuple[Int64, Bool, Int64]:
    """The clock of each record, accumulated from the low words forward from the start or back from the exit.

    Also whether it stepped back from the record before, and the first record of its track.
    """
    n = len(records.track)
    first = np.ones(n, bool)
    first[1:] = records.track[1:] != records.track[:-1]
    before = np.where(first, windows.start_clock[records.track] & (WRAP - 1), np.roll(records.low, 1))
    before = np.where(first & windows.from_exit[records.track], records.low, before)
    delta = (records.low - before) & (WRAP - 1)
    backward = delta >= BACKWARD
    delta = np.where(backward, delta - WRAP, delta)
    total = np.cumsum(delta)
    heads = np.flatnonzero(first)
    lengths = np.diff(np.append(heads, n))
    origin = windows.start_clock[records.track[heads]] - (total[heads] - delta[heads])
    if windows.from_exit.any():
        tails = heads + lengths - 1
        rest = (windows.exit_clock[records.track[tails]] - records.low[tails]) & (WRAP - 1)
        rest = np.where(rest >= BACKWARD, rest - WRAP, rest)
        from_exit = windows.exit_clock[records.track[tails]] - rest - total[tails]
        origin = np.where(windows.from_exit[records.track[heads]], from_exit, origin)
    clock: Int64 = total + np.repeat(origin, lengths)
    return clock, backward & (records.exact < 0), np.repeat(heads, lengths)


def _settle_exact(records: TrackRecords, clock: Int64, head: Int64) -> None:
    """Correct the clocks after each exact 64-bit clock, up to the next one in the track."""
    if not records.wide.any():
        return
    latest = np.maximum.accumulate(np.where(records.exact >= 0, np.arange(len(clock)), -1))
    known = latest >= head
    clock[known] += (records.exact - clock)[latest[known]]


def _settle_anchors(
    records: TrackRecords, clock: Int64, windows: TrackWindows, plan: RowPlan, out: DecodedRows
) -> Int64:
    """Add the 32-bit wraps that an anchor's globaltimer shows to be missing, from it on; return the anchors."""
    anchors = np.flatnonzero(records.kind == Kind.ANCHOR)
    ends = np.searchsorted(records.track, np.arange(len(windows)), side="right")
    exact = np.append(np.flatnonzero(records.exact >= 0), len(clock))
    place = plan.anchor_start.copy()
    for i in anchors:
        track = records.track[i]
        ns, wraps = anchor_time(records, int(i), int(clock[i]), windows, int(track))
        if ns >= 0:
            stop = min(int(ends[track]), int(exact[np.searchsorted(exact, i)]))
            clock[i:stop] += wraps * WRAP
            out.anchor_clock[place[track]] = clock[i]
            out.anchor_ns[place[track]] = ns
        place[track] += 1
    return anchors


def _plain_columns(records: TrackRecords, clock: Int64, plan: RowPlan, regions: RegionTable, out: DecodedRows) -> None:
    """Fill the columns that do not require pairing begins with ends."""
    gives = _ROW_KIND[records.kind] >= 0
    rows = slice(int(plan.row_start[0]), int(plan.row_start[-1]))
    out.kind[rows] = _ROW_KIND[records.kind[gives]]
    out.region[rows], unknown = regions.lookup(records.region[gives])
    out.counters[Counter.UNKNOWN_REGIONS] += int(unknown[records.kind[gives] != DROPPED].sum())
    out.start[rows] = clock[gives]
    out.duration[rows], out.open[rows], out.depth[rows], out.parent[rows] = 0, 0, 0, -1
    values = np.flatnonzero(records.kind == Kind.VALUE)
    if len(values):
        row = (np.cumsum(gives) - 1)[values] + rows.start
        paid = records.has_payload[values]
        bits, tag = records.payload[values], records.tag[values]
        real = np.where(tag == ValueType.U64, bits.astype(np.float64), bits.view(np.int64).astype(np.float64))
        out.value[row] = np.where(paid, np.where(tag == ValueType.F64, bits.view(np.float64), real), 0.0)
        out.has_value[row] = np.where(paid, np.where(tag == ValueType.BARRIER, BARRIER_VALUE, 1), 0)
        out.counters[Counter.TORN_PAYLOADS] += int((~paid).sum())


def _last_clock(records: TrackRecords, clock: Int64, windows: TrackWindows, out: DecodedRows) -> Int64:
    """The last known time of each track: its exit, or its last record if later ones were lost."""
    good = records.kind < DROPPED
    last = windows.start_clock.copy()
    if not good.all():
        records, clock = replace(records, track=records.track[good], exact=records.exact[good]), clock[good]
    tails = np.flatnonzero(np.append(records.track[1:] != records.track[:-1], True)) if len(clock) else np.empty(0, int)
    last[records.track[tails]] = clock[tails]
    inexact = np.ones(len(windows), bool)
    inexact[records.track[tails]] = records.exact[tails] < 0
    complete = windows.exited & ~windows.lossy
    # A track without a record has nothing to unwrap, but a ring that lost all of them starts at its exit.
    empty = np.bincount(records.track, minlength=len(windows)) == 0
    last = np.where(empty & windows.from_exit, windows.exit_clock, last)
    out.counters[Counter.CLOCK_AMBIGUOUS] += int((complete & inexact & (windows.exit_clock - last >= WRAP)).sum())
    return np.where(complete, np.maximum(windows.exit_clock, last), last)


def _needs_walk(records: TrackRecords, tracks: int) -> Bool:
    asynchronous = (records.kind == Kind.ASYNC_BEGIN) | (records.kind == Kind.ASYNC_END)
    return np.bincount(records.track[asynchronous], minlength=tracks) > 0


def _pair_nested(records: TrackRecords, clock: Int64, last: Int64, skip: Bool, plan: RowPlan, out: DecodedRows) -> Bool:
    """Pair begins and ends by nesting depth in all tracks at once. Returns the tracks that need walk_track instead."""
    tracks = len(skip)
    change = (records.kind == Kind.BEGIN).astype(np.int64) - (records.kind == Kind.END)
    height = np.cumsum(change)
    starts = np.searchsorted(records.track, np.arange(tracks))
    base = np.append(0, height)[starts]
    height -= base[records.track]
    careful: Bool = skip.copy()
    careful[records.track[(height < 0) | (height > _DEEP)]] = True

    paired = np.flatnonzero((change != 0) & ~careful[records.track])
    level = height[paired] - (change[paired] > 0)
    order = paired[np.lexsort((level, records.track[paired]))]
    level = height[order] - (change[order] > 0)
    begins = change[order] > 0
    follows = np.append((records.track[order][1:] == records.track[order][:-1]) & (level[1:] == level[:-1]), False)
    closed = begins & follows
    ends = np.append(order[1:], 0)[closed]
    wrong = records.region[order[closed]] != records.region[ends]
    careful[records.track[ends[wrong]]] = True

    keep = ~careful[records.track]
    row = np.cumsum(_ROW_KIND[records.kind] >= 0) - 1 + int(plan.row_start[0])
    good = closed & keep[order]
    out.duration[row[order[good]]] = np.maximum(clock[np.append(order[1:], 0)[good]] - clock[order[good]], 0)
    unclosed = order[begins & ~follows & keep[order]]
    out.open[row[unclosed]] = 1
    out.duration[row[unclosed]] = np.maximum(last[records.track[unclosed]] - clock[unclosed], 0)
    out.counters[Counter.OPEN_SPANS] += len(unclosed)
    _depth_and_parent(records, height, change, keep, row, out)
    return careful


def _depth_and_parent(
    records: TrackRecords, height: Int64, change: Int64, keep: Bool, row: Int64, out: DecodedRows
) -> None:
    gives = (_ROW_KIND[records.kind] >= 0) & keep
    depth = height - (change > 0)
    out.depth[row[gives]] = depth[gives]
    for level in range(int(depth[gives].max(initial=0))):
        # The parent is the latest begin one level up. It is in the same track, because depths start at 0 there.
        opener = np.where((change > 0) & (depth == level), row, -1)
        child = gives & (depth == level + 1)
        out.parent[row[child]] = np.maximum.accumulate(opener)[child]
