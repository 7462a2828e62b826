"""What each warp of a launch that did not end was doing: its open regions, its last value, and its barrier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warplens.record.barrier_words import Operation
from warplens.record.running_tracks import HangRecord
from warplens.trace.barrier_rows import NO_RECORD, BarrierWords, Int
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE, LaunchInfo

WAIT_OPERATIONS = (Operation.WAIT, Operation.WAIT_STATE, Operation.SYNC, Operation.CLUSTER_WAIT)


@dataclass(frozen=True)
class RunningWarp:
    """One warp that had begun and not ended.

    `regions` are its open regions, the outermost first; `after` is the region that it left last, where none is open.
    `since_ns` is the trace's time of the begin of the innermost one, or of the last record; None where the warp left no
    record. `wait_row` is the row of the barrier record of its wait, -1 for none. `value` is its last value, and
    `value_of` the region of that.
    """

    block: int
    warp: int
    regions: tuple[str, ...] = ()
    after: str = ""
    since_ns: int | None = None
    wait_row: int = -1
    value_of: str = ""
    value: float = 0.0


class LaunchRows:
    """The rows of one launch, as far as the analysis of a hang needs them."""

    def __init__(self, trace: Trace, info: LaunchInfo) -> None:
        mine = (trace.numpy("launch") == info.launch) & (trace.numpy("rank") == info.rank)
        self.rows: Int = np.flatnonzero(mine)
        self.region, self.names = trace.codes("region")
        self.start_ns, self.dur_ns, self.cycle = (trace.numpy(name) for name in ("start_ns", "dur_ns", "start_cycle"))
        self.parent, self.value = trace.numpy("parent"), trace.numpy("value")
        self.released = trace.numpy("released_by").astype(np.int64)
        self.block, self.warp = (trace.numpy(name).astype(np.int64) for name in ("block", "warp"))
        self.is_span, self.is_value = trace.of_kind("span"), trace.of_kind("value")
        self.is_open = trace.numpy("open") & self.is_span
        self.barriers: Int = self.rows[self.is_value[self.rows] & (self.released[self.rows] != NO_RECORD)]
        self.words = BarrierWords(np.nan_to_num(self.value[self.barriers]))

    def by_warp(self) -> dict[tuple[int, int], Int]:
        """The rows of each warp, in order of their begins."""
        if not len(self.rows):
            return {}
        block, warp = self.block[self.rows], self.warp[self.rows]
        order = np.lexsort((self.cycle[self.rows], warp, block))
        heads = np.flatnonzero(np.diff(block[order], prepend=-1) | np.diff(warp[order], prepend=-1))
        parts = np.split(self.rows[order], heads[1:])
        return {(int(self.block[part[0]]), int(self.warp[part[0]])): part for part in parts}


def running_warps(rows: LaunchRows, record: HangRecord) -> list[RunningWarp]:
    """The state of every warp that still ran."""
    of = rows.by_warp()
    nothing = np.empty(0, np.int64)
    waits = rows.barriers[rows.words.is_any(WAIT_OPERATIONS)]
    is_wait = np.zeros(len(rows.value), bool)
    is_wait[waits] = True
    return [_state(rows, block, warp, of.get((block, warp), nothing), is_wait) for block, warp in record.tracks()]


def _state(rows: LaunchRows, block: int, warp: int, mine: Int, is_wait: np.ndarray) -> RunningWarp:
    mine = mine[rows.region[mine] != rows.names.index(LIFE)] if LIFE in rows.names else mine
    if not len(mine):
        return RunningWarp(block, warp)
    stack = mine[rows.is_open[mine]]
    ended = mine[rows.is_span[mine] & ~rows.is_open[mine]]
    ends = (rows.start_ns + rows.dur_ns)[mine] if not len(stack) else rows.start_ns[stack[-1:]]
    values = mine[rows.is_value[mine] & (rows.released[mine] == NO_RECORD)]
    last = values[-1] if len(values) else -1
    after = ended[(rows.start_ns + rows.dur_ns)[ended].argmax()] if len(ended) and not len(stack) else -1
    return RunningWarp(
        block,
        warp,
        regions=tuple(rows.names[code] for code in rows.region[stack].tolist()),
        after=rows.names[rows.region[after]] if after >= 0 else "",
        since_ns=int(ends.max()),
        wait_row=_waits_at(rows, mine, stack, is_wait),
        value_of=rows.names[rows.region[last]] if last >= 0 else "",
        value=float(rows.value[last]) if last >= 0 else 0.0,
    )


def _waits_at(rows: LaunchRows, mine: Int, stack: Sequence[int] | Int, is_wait: np.ndarray) -> int:
    """The barrier record of the wait that the warp is in: inside its innermost open region, or its last record."""
    found = mine[is_wait[mine]]
    if not len(found):
        return -1
    row = int(found[-1])
    inside = len(stack) > 0 and rows.parent[row] == stack[-1]
    return row if inside or row == mine[-1] else -1
