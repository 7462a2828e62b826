"""What a warp keeps in `mode="aggregate"`: one row per region and path of enclosing regions, instead of records.

A row takes the place of slots in the track: first come the statistics of all rows, then the histograms of spans. With
full='ring', a slot with the number of records and the latest of them follow.

    statistics   32 bytes: the sum of the durations (u64), the complement of the shortest one and the longest one, as
                 two u32 with a 32-bit clock, as two u64 with a 64-bit clock. Instants only count, in place of the sum.
    histogram    128 counters (u32). A duration of `d` cycles falls into bucket `4 * e + s`, where `e` is the number of
                 its highest bit and `s` the two bits below: 4 buckets per power of two. 0 cycles fall into the first
                 bucket, and 2^32 cycles and more into the last.

Zeroed memory is a row without durations, so nothing has to be initialised. Durations are in cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.record.layout import LIFETIME_BITS, MAX_REGION, MAX_SLOTS, SLOT_BYTES

AGGREGATE = "aggregate"
"""Key in a launch's `extra`: its rows."""
STATISTICS_BYTES = 32
BUCKETS = 128
HISTOGRAM_BYTES = 4 * BUCKETS
MAX_ROWS = 4096
KINDS = ("span", "instant")

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AggregateRow:
    """A region inside the row `parent` (-1: inside none)."""

    region: int
    parent: int
    kind: str = "span"


@dataclass(frozen=True)
class AggregateLayout:
    """The rows of a kernel, whether its durations have 64 bits, and the slots of its ring: a power of two, or none.

    `work` is the region of the code between regions. It has no row: its time is that of the warp's life outside all
    rows. It is 0 where that is not known: regions overlap, or may be open at the exit.
    """

    rows: tuple[AggregateRow, ...]
    wide: bool = False
    ring: int = 0
    work: int = 0

    @property
    def spans(self) -> list[int]:
        return [number for number, row in enumerate(self.rows) if row.kind == "span"]

    @property
    def slots(self) -> int:
        return self.ring_at // SLOT_BYTES + (1 + self.ring if self.ring else 0)

    @property
    def ring_at(self) -> int:
        """Bytes from a track's first slot to the number of records in its ring, which comes next."""
        return STATISTICS_BYTES * len(self.rows) + HISTOGRAM_BYTES * len(self.spans)

    def statistics_at(self, row: int) -> int:
        """Bytes from a track's first slot to the statistics of a row."""
        return STATISTICS_BYTES * row

    def histogram_at(self, row: int) -> int:
        """Bytes from a track's first slot to the histogram of a row of spans."""
        return STATISTICS_BYTES * len(self.rows) + HISTOGRAM_BYTES * self.spans.index(row)

    def describe(self) -> dict[str, Any]:
        rows = [[row.region, row.parent, row.kind] for row in self.rows]
        more = {name: number for name, number in (("ring", self.ring), ("work", self.work)) if number}
        return {"wide": self.wide, "rows": rows, **more}

    @staticmethod
    def restore(document: Mapping[str, Any]) -> AggregateLayout:
        """The inverse of `describe`; raises ValueError for a document that describes no rows."""
        rows: list[AggregateRow] = []
        try:
            for region, parent, kind in document["rows"]:
                rows.append(AggregateRow(int(region), int(parent), str(kind)))
            wide, ring, work = bool(document["wide"]), int(document.get("ring", 0)), int(document.get("work", 0))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"no list of rows ({error!r})") from None
        for number, row in enumerate(rows):
            if row.kind not in KINDS or not 0 <= row.region <= MAX_REGION or not -1 <= row.parent < number:
                raise ValueError(f"row {number} is region {row.region}, a {row.kind!r} inside row {row.parent}")
        if len(rows) > MAX_ROWS:
            raise ValueError(f"{len(rows)} rows, at most {MAX_ROWS} are possible")
        if not 0 <= ring <= MAX_SLOTS or ring & (ring - 1):
            raise ValueError(f"a ring of {ring} slots, which is no power of two")
        if not 0 <= work <= MAX_REGION:
            raise ValueError(f"the code between regions is region {work}")
        return AggregateLayout(tuple(rows), wide, ring, work)


@dataclass(frozen=True)
class AggregateTracks:
    """The rows of all tracks of a launch: arrays of [track, row], and histograms of [track, row of spans, bucket]."""

    count: Int
    total: Int
    least: Int
    most: Int
    histogram: Int

    def with_work(self, layout: AggregateLayout, life: Int) -> tuple[AggregateLayout, AggregateTracks]:
        """The same with a last row for the code between regions: for each track, as one duration, its `life` in cycles
        without the outermost rows. A negative life is not known; and durations of 32 bits may have wrapped around in a
        longer one."""
        outermost = [number for number in layout.spans if layout.rows[number].parent < 0]
        rest = life - self.total[:, outermost].sum(axis=1)
        rest = np.where((rest > 0) & (layout.wide | (life >> 32 == 0)), rest, 0)[:, None]
        count = (rest > 0).astype(np.int64)
        histogram = (bucket_of(rest)[..., None] == np.arange(BUCKETS)) * count[..., None]
        rows = (*layout.rows, AggregateRow(layout.work, -1))
        columns = ((self.count, count), (self.total, rest), (self.least, rest), (self.most, rest))
        made = (np.concatenate(both, axis=1) for both in (*columns, (self.histogram, histogram)))
        return replace(layout, rows=rows, work=0), AggregateTracks(*made)


def read_aggregates(layout: AggregateLayout, slots: npt.NDArray[np.uint8]) -> AggregateTracks:
    """Read the rows of each track from its slots: `slots` is [track, byte]."""
    tracks, many, spans = len(slots), len(layout.rows), layout.spans
    head = np.ascontiguousarray(slots[:, : STATISTICS_BYTES * many]).reshape(tracks, many, STATISTICS_BYTES)
    first = STATISTICS_BYTES * many
    tail = np.ascontiguousarray(slots[:, first : first + HISTOGRAM_BYTES * len(spans)])
    histogram = tail.view("<u4").reshape(tracks, len(spans), BUCKETS).astype(np.int64)
    total = head[..., :8].copy().view("<u8")[..., 0].astype(np.int64)
    if layout.wide:
        least, most = (~head[..., 8:16].copy().view("<u8")[..., 0], head[..., 16:24].copy().view("<u8")[..., 0])
    else:
        least, most = (~head[..., 8:12].copy().view("<u4")[..., 0], head[..., 12:16].copy().view("<u4")[..., 0])
    count = total.copy()
    count[:, spans] = histogram.sum(axis=2)
    instants = [number for number in range(many) if number not in spans]
    total[:, instants] = 0
    none = count == 0
    least, most = (np.where(none, 0, values.astype(np.int64)) for values in (least, most))
    least[:, instants] = most[:, instants] = 0
    return AggregateTracks(count, total, least, most, histogram)


def adds_up(count: Int, total: Int, least: Int, most: Int) -> npt.NDArray[np.bool_]:
    """Whether that many durations of `least` to `most` cycles can have each total."""
    many = count.astype(np.float64)
    within = (least >= 0) & (least <= most) & (least * many <= total) & (total <= most * many)
    return np.asarray(within & (total >> LIFETIME_BITS == 0) & (count > 0) & (count >> LIFETIME_BITS == 0))


def bucket_of(durations: npt.ArrayLike) -> Int:
    cycles = np.asarray(durations, np.int64)
    bits = np.floor(np.log2(np.maximum(cycles, 1).astype(np.float64))).astype(np.int64)
    # A double rounds up close to a power of two.
    bits = np.where(cycles < np.left_shift(1, bits), bits - 1, bits)
    below = np.where(bits >= 2, cycles >> np.maximum(bits - 2, 0), cycles << np.maximum(2 - bits, 0)) & 3
    return np.asarray(np.where(cycles < 1, 0, np.minimum(4 * bits + below, BUCKETS - 1)))


def bucket_starts() -> npt.NDArray[np.float64]:
    """The least duration of each bucket, and past the last one the end of the range."""
    bucket = np.arange(BUCKETS + 1)
    return np.asarray(2.0 ** (bucket // 4) * (4 + bucket % 4) / 4)
