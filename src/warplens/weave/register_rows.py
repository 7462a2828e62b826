"""Rows of `mode="aggregate"` that stay in registers until their warp exits: those of regions in loops.

A load of what the same warp stored last takes the way through the L2 cache, some 270 cycles. So nothing of such a row
is in memory before the exit. All lanes of a converged warp read the same clocks and compute the same sum and extremes,
and the 128 buckets of the histogram are four counters in each of 32 lanes: lane i counts the durations from 2^i to
2^(i+1).

Adding up an execution takes eleven instructions after that of its duration, seven of them for the histogram, and no
predicate. Each lane shifts 2^28 left by the distance of the bucket from its first one. That leaves bit 28, 29, 30 or 31
in the lane that the bucket belongs to; in all others it is shifted out. Counter i adds what is left of it above bit
28 + i, with one LEA.HI. So it counts its own bucket and twice what the next counter has; the exit takes that away.

At the end of a loop's body nothing hides these instructions. So an execution of a *late* row waits: its end only reads
the clock, and the next begin of the region adds it up while the region's own code runs. A region of a few instructions
is too short to hide that, and would seem longer by it; its executions are added up right after their end. Before the
first execution, the registers of a late row hold one of `NEVER` cycles. All statistics begin such that it leaves no
trace in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from warplens.record.aggregate_rows import BUCKETS, AggregateLayout
from warplens.record.layout import HEADER_BYTES
from warplens.weave.track_ptx import ZERO

MAX_REGISTER_ROWS = 4
"""Rows that stay in registers, ten each; further ones are kept in memory."""
FIRST_BUCKET = 127 << 2
"""The upper bits of 1.0 as a float, down to the second bit of its fraction: bucket 0."""
LANE_BUCKETS = "%wl_lb"
"""Minus FIRST_BUCKET and the number of this lane's first bucket. A warp that does not record has that of no lane."""
RECORDS = "%wl_rc"
"""The predicate of lanes whose warp records."""
_PER_LANE = BUCKETS // 32
_TOP = "%wl_tb"
"""A register with the bit of a lane's first bucket. ptxas does not know it, so it is not built again in a loop."""
_TOP_BIT = 32 - _PER_LANE
NEVER = (1 << 32) - 1
"""A duration in the last bucket."""

NewRegister = Callable[[str], str]
"""Declares a register of a type, such as `b32`."""


def set_lane_buckets(lane: str) -> str:
    """The PTX that sets LANE_BUCKETS from a register with the number of the lane, or with -1."""
    return f"mad.lo.s32 {LANE_BUCKETS}, {lane}, {-_PER_LANE}, {-FIRST_BUCKET};"


def bucket_number(
    duration: str, number: str, new: NewRegister, kind: str = "u32", *, positive: bool = False
) -> list[str]:
    """Set `number` to that of the duration's bucket, plus FIRST_BUCKET; `positive` says that no duration is 0."""
    real, least = new("f32"), duration if positive else new(kind.replace("u", "b"))
    return [
        *[f"\tmax.{kind} {least}, {duration}, 1;"] * (not positive),
        f"\tcvt.rz.f32.{kind} {real}, {least};",
        # The exponent and two bits of the fraction number the bucket.
        f"\tmov.b32 {number}, {real}; shr.u32 {number}, {number}, 21;",
    ]


class RegisterRows:
    """The PTX of the rows that stay in registers; durations have 32 bits, and those of `timed` rows are not 0."""

    def __init__(
        self,
        layout: AggregateLayout,
        rows: Sequence[int],
        late: Collection[int],
        timed: Collection[int],
        new: NewRegister,
    ) -> None:
        self.layout, self.rows, self._timed, self._new = layout, tuple(rows[:MAX_REGISTER_ROWS]), timed, new
        self.late = frozenset(late) & frozenset(self.rows)

    def __contains__(self, row: int) -> bool:
        return row in self.rows

    def opening(self) -> list[str]:
        """Declare the registers and let them stand for no executions."""
        if not self.rows:
            return []
        # A value that differs between lanes, as far as ptxas knows, does not wait in a uniform register.
        lines = [f"\t.reg .b32 {_TOP}; mad.lo.u32 {_TOP}, {ZERO}, {LANE_BUCKETS}, {1 << _TOP_BIT};"]
        for row in self.rows:
            total, least, most, counts = _names(row)
            never = row in self.late
            lines += [
                f"\t.reg .b64 {total}; .reg .b32 {least}, {most}, {', '.join(counts)};",
                f"\tmov.b64 {total}, {-NEVER * never}; mov.b32 {least}, -1; mov.b32 {most}, 0;",
                *(f"\tmov.b32 {count}, 0;" for count in counts),
            ]
            if never:
                last = f"{LANE_BUCKETS}, {_PER_LANE - BUCKETS - FIRST_BUCKET}"
                lines.append(f"\tsetp.eq.s32 %wl_q, {last};")
                lines += [f"\tselp.b32 {count}, {-1 << at}, 0, %wl_q;" for at, count in enumerate(reversed(counts))]
        return lines

    def add(self, row: int, duration: str) -> list[str]:
        """Add up an execution."""
        total, least, most, counts = _names(row)
        wide, more, bucket, bit = self._new("b64"), self._new("b32"), self._new("b32"), self._new("b32")
        lines = [
            f"\tcvt.u64.u32 {wide}, {duration}; add.s64 {total}, {total}, {wide};",
            # One more than the longest, so that NEVER becomes 0.
            f"\tadd.u32 {more}, {duration}, 1; max.u32 {most}, {most}, {more}; min.u32 {least}, {least}, {duration};",
            *bucket_number(duration, bucket, self._new, positive=row in self._timed),
            f"\tadd.s32 {bucket}, {bucket}, {LANE_BUCKETS}; shl.b32 {bit}, {_TOP}, {bucket};",
        ]
        for place, count in enumerate(counts):
            above = self._new("b32")
            lines.append(f"\tshr.u32 {above}, {bit}, {_TOP_BIT + place}; add.u32 {count}, {count}, {above};")
        return lines

    def closing(self, measured: Callable[[int], tuple[str, str]], still_open: Collection[int]) -> list[str]:
        """Store everything. `measured` gives the duration that waits in a row, and the PTX that computes it; of rows
        that are `still_open`, none waits."""
        if not self.rows:
            return []
        place = self._new("b64")
        lines = [f"\tmad.wide.s32 {place}, {LANE_BUCKETS}, -4, %wl_a;"]
        for row in self.rows:
            total, least, most, counts = _names(row)
            at = HEADER_BYTES + self.layout.statistics_at(row)
            histogram_at = HEADER_BYTES + self.layout.histogram_at(row) - 4 * FIRST_BUCKET
            if row in self.late and row not in still_open:
                duration, computed = measured(row)
                lines += [computed, *self.add(row, duration)]
            for one, following in itertools.pairwise(counts):
                twice = self._new("b32")
                lines.append(f"\tshl.b32 {twice}, {following}, 1; sub.u32 {one}, {one}, {twice};")
            lines += [
                f"\t@{RECORDS} st.global.v4.b32 [{place}+{histogram_at}], {{{', '.join(counts)}}};",
                f"\tnot.b32 {least}, {least}; sub.u32 {most}, {most}, 1;",
                f"\t@%wl_p st.global.b64 [%wl_a+{at}], {total};",
                f"\t@%wl_p st.global.v2.b32 [%wl_a+{at + 8}], {{{least}, {most}}};",
            ]
        return lines


def _names(row: int) -> tuple[str, str, str, list[str]]:
    """The registers of a row: sum, shortest, one more than the longest, this lane's counters."""
    counts = [f"%wl_rn{row}_{place}" for place in range(_PER_LANE)]
    return f"%wl_ra{row}", f"%wl_rl{row}", f"%wl_rm{row}", counts
