"""Decode one track record by record: the reference for what a track means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from warplens.decode.damaged_clocks import DROPPED, IGNORED
from warplens.decode.decoded_rows import SEARCH_LIMIT, Counter, DecodedRows, Detail
from warplens.decode.track_records import TrackRecords
from warplens.record.layout import Kind

_INT16_MAX = 32767
_OPENS = (Kind.BEGIN, Kind.ASYNC_BEGIN)
_GIVES_ROW = (*_OPENS, Kind.INSTANT, Kind.VALUE)

Open = tuple[int, int, int]
"""The row, region and tag of an open span."""


def walk_track(
    records: TrackRecords, clock: npt.NDArray[np.int64], part: slice, track: int, last: int, row: int, out: DecodedRows
) -> list[Detail]:
    """Pair the records of one track. An end closes the innermost span of its name; unclosed spans are marked open."""
    stack: list[Open] = []
    flying: list[Open] = []
    details: list[Detail] = []
    for i in range(part.start, part.stop):
        kind, region, tag, now = records.kind[i], int(records.region[i]), int(records.tag[i]), int(clock[i])
        if kind in (DROPPED, IGNORED):
            details.append(Detail(Counter.DAMAGED_RECORDS, track, int(records.slot[i]), region, -1))
            if kind == DROPPED:
                out.parent[row] = -1
                row += 1
        elif kind in _GIVES_ROW:
            out.depth[row] = min(len(stack), _INT16_MAX)
            out.parent[row] = stack[-1][0] if stack else -1
            if kind in _OPENS:
                (stack if kind == Kind.BEGIN else flying).append((row, region, tag))
            row += 1
        elif kind in (Kind.END, Kind.ASYNC_END):
            pool = stack if kind == Kind.END else flying
            at = _find(pool, region, None if kind == Kind.END else tag)
            if at is None:
                out.counters[Counter.ORPHAN_ENDS] += 1
                details.append(Detail(Counter.ORPHAN_ENDS, track, int(records.slot[i]), region, -1))
                continue
            if kind == Kind.END and at != len(pool) - 1:
                out.counters[Counter.MISMATCHED_ENDS] += 1
                details.append(Detail(Counter.MISMATCHED_ENDS, track, int(records.slot[i]), region, pool[-1][1]))
            closed = pool.pop(at)[0]
            out.duration[closed] = max(now - int(out.start[closed]), 0)
    for left, _, _ in (*stack, *flying):
        out.open[left] = 1
        out.duration[left] = max(last - int(out.start[left]), 0)
    out.counters[Counter.OPEN_SPANS] += len(stack) + len(flying)
    return details


def _find(pool: list[Open], region: int, tag: int | None) -> int | None:
    for at in range(len(pool) - 1, max(len(pool) - SEARCH_LIMIT, 0) - 1, -1):
        if pool[at][1] == region and tag in (None, pool[at][2]):
            return at
    return None
