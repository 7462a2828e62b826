"""Rows of `mode="aggregate"` that stay in registers until their warp exits: those of regions in loops.

A load of what the same warp stored last takes the way through the L2 cache, some 270 cycles. So the sum and the
extremes of such a region are added up in registers. The executions in the newest bucket of its histogram are counted in
a register too. When the bucket changes, the old one is loaded, and what is to be stored waits for the next change: by
then the load has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

from warplens.record.aggregate_rows import AggregateLayout
from warplens.record.layout import HEADER_BYTES

MAX_REGISTER_ROWS = 4
"""Rows that stay in registers, seven each; further ones are kept in memory."""
FIRST_BUCKET = 127 << 2
"""The upper bits of 1.0 as a float, down to the second bit of its fraction: bucket 0."""
_UNUSED = HEADER_BYTES - 4
"""A word of the track's header that means nothing: what is stored before the first change goes there."""
_ADDRESS, _VALUE, _RUN, _CHANGED = "%wl_pa", "%wl_pn", "%wl_pr", "%wl_ch"
"""The counter that waits to be stored: its address, its old value and what is to be added; and whether a bucket
changed."""


class RegisterRows:
    """The PTX of the rows that stay in registers; durations have 32 bits."""

    def __init__(self, layout: AggregateLayout, rows: Sequence[int]) -> None:
        self.layout, self.rows = layout, tuple(rows[:MAX_REGISTER_ROWS])

    def __contains__(self, row: int) -> bool:
        return row in self.rows

    def opening(self) -> list[str]:
        """Declare the registers and let them stand for no executions."""
        if not self.rows:
            return []
        lines = [
            f".reg .b64 {_ADDRESS}; .reg .b32 {_VALUE}, {_RUN}; .reg .pred {_CHANGED};",
            f"add.s64 {_ADDRESS}, %wl_a, {_UNUSED}; mov.b32 {_VALUE}, 0; mov.b32 {_RUN}, 0;",
        ]
        for row in self.rows:
            total, least, most, bucket, run = _names(row)
            lines.append(f".reg .b64 {total}; .reg .b32 {least}, {most}, {bucket}, {run};")
            lines.append(f"mov.b64 {total}, 0; mov.b32 {least}, 0; mov.b32 {most}, 0;")
            lines.append(f"mov.b32 {bucket}, {FIRST_BUCKET}; mov.b32 {run}, 0;")
        return ["\t" + line for line in lines]

    def add(self, row: int, duration: str, number: str, wide: str) -> list[str]:
        """Add an execution that took `duration`. `number` holds its bucket and is overwritten; `wide` is free."""
        total, least, most, bucket, run = _names(row)
        lines = [
            f"setp.ne.and.u32 {_CHANGED}, {number}, {bucket}, %wl_p;",
            f"@{_CHANGED} add.u32 {_VALUE}, {_VALUE}, {_RUN};",
            f"@{_CHANGED} st.global.b32 [{_ADDRESS}], {_VALUE};",
            f"@{_CHANGED} mad.wide.u32 {_ADDRESS}, {bucket}, 4, %wl_a;",
            f"@{_CHANGED} add.s64 {_ADDRESS}, {_ADDRESS}, {self._histogram_at(row)};",
            f"@{_CHANGED} ld.global.b32 {_VALUE}, [{_ADDRESS}];",
            f"@{_CHANGED} mov.b32 {_RUN}, {run};",
            f"@{_CHANGED} mov.b32 {run}, 0;",
            f"mov.b32 {bucket}, {number}; add.u32 {run}, {run}, 1;",
            f"cvt.u64.u32 {wide}, {duration}; add.s64 {total}, {total}, {wide};",
            f"not.b32 {number}, {duration}; max.u32 {least}, {least}, {number}; max.u32 {most}, {most}, {duration};",
        ]
        return ["\t" + line for line in lines]

    def closing(self) -> list[str]:
        """Store everything."""
        if not self.rows:
            return []
        lines = [f"add.u32 {_VALUE}, {_VALUE}, {_RUN}; @%wl_p st.global.b32 [{_ADDRESS}], {_VALUE};"]
        for row in self.rows:
            total, least, most, bucket, run = _names(row)
            at = HEADER_BYTES + self.layout.statistics_at(row)
            lines += [
                f"mad.wide.u32 {_ADDRESS}, {bucket}, 4, %wl_a;",
                f"add.s64 {_ADDRESS}, {_ADDRESS}, {self._histogram_at(row)};",
                f"@%wl_p ld.global.b32 {_VALUE}, [{_ADDRESS}]; add.u32 {_VALUE}, {_VALUE}, {run};",
                f"@%wl_p st.global.b32 [{_ADDRESS}], {_VALUE};",
                f"@%wl_p st.global.b64 [%wl_a+{at}], {total};",
                f"@%wl_p st.global.v2.b32 [%wl_a+{at + 8}], {{{least}, {most}}};",
            ]
        return ["\t" + line for line in lines]

    def _histogram_at(self, row: int) -> int:
        """Bytes from the track to the counter of a bucket, less four times its number."""
        return HEADER_BYTES + self.layout.histogram_at(row) - 4 * FIRST_BUCKET


def _names(row: int) -> tuple[str, str, str, str, str]:
    """The registers of a row: sum, complement of the shortest, longest, newest bucket, executions in it."""
    return f"%wl_ra{row}", f"%wl_rl{row}", f"%wl_rm{row}", f"%wl_rb{row}", f"%wl_rn{row}"
