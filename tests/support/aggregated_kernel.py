"""Kernels in aggregate mode and in trace mode, in the interpreter: what both must tell alike."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from tests.support.looped_ptx import HEAD
from tests.support.simulated_trace import count_only_work, traced
from warplens.record.aggregate_rows import BUCKETS, bucket_of
from warplens.simulate import GlobalMemory
from warplens.trace.model import Trace
from warplens.weave.weaving import Weaving

VARIED = (
    HEAD
    + """\
.visible .entry varied(.param .u64 out, .param .u32 steps, .param .u32 last, .param .u64 scratch)
{
	.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
	ld.param.u32 %r1, [steps];
	ld.param.u32 %r7, [last];
	mov.u32 %r2, 0;
	mov.u32 %r3, %tid.x;
	setp.eq.u32 %p3, %r1, 0;
	@%p3 bra $done;
$outer:
	// @warplens B work
	LANES
	mul.lo.u32 %r4, %r2, %r2;
	shr.u32 %r4, %r4, 1;
$inner:
	xor.b32 %r3, %r3, 1;
	setp.eq.u32 %p1, %r4, 0;
	sub.u32 %r4, %r4, 1;
	@!%p1 bra $inner;
	setp.eq.u32 %p2, %r2, %r7;
	@%p2 ret;
$end:
	// @warplens E work
	// @warplens B short
	xor.b32 %r3, %r3, 1;
	// @warplens E short
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p2, %r2, %r1;
	@%p2 bra $outer;
$done:
	ld.param.u64 %rd1, [out];
	st.global.u32 [%rd1], %r3;
	ret;
}
"""
)
"""Regions in loops: one of durations of many buckets, which may be open at the exit, and a short one."""


def path(rows: list[dict[str, Any]], row: dict[str, Any]) -> tuple[str, ...]:
    above = () if row["parent"] < 0 else path(rows, rows[row["parent"]])
    return (*above, row["region"])


def executions(trace: Trace) -> dict[Any, list[int]]:
    """The durations of each path in each warp of a trace of records, without spans that never ended."""
    rows = trace.spans.to_pylist()
    found = defaultdict(list)
    for row in rows:
        if row["kind"] == "span" and not row["open"]:
            found[row["block"], row["warp"], path(rows, row)].append(row["dur_cycles"])
    return dict(found)


def aggregates(trace: Trace) -> dict[Any, dict[str, Any]]:
    rows = trace.spans.to_pylist()
    return {(row["block"], row["warp"], path(rows, row)): row for row in rows if row["kind"] == "span"}


def same(records: Trace, kept: Trace) -> None:
    """Counts, sums, extremes and histograms are those of the records."""
    expected, found = executions(records), aggregates(kept)
    assert kept.aggregated
    assert not records.aggregated
    assert found.keys() == expected.keys()
    for key, durations in expected.items():
        row = found[key]
        told = row["count"], row["dur_cycles"], row["min_cycles"], row["max_cycles"]
        assert told == (len(durations), sum(durations), min(durations), max(durations)), key
        histogram = np.bincount(bucket_of(durations), minlength=BUCKETS)
        assert row["buckets"] == np.flatnonzero(histogram).tolist()
        assert row["bucket_counts"] == histogram[histogram > 0].tolist()


def varied(
    monkeypatch: pytest.MonkeyPatch, mode: str, text: str, steps: int, last: int, threads: int = 64, sums: str = "auto"
) -> Trace:
    count_only_work(monkeypatch)
    memory = GlobalMemory(64 << 20)
    how = Weaving(mode=mode, aligned=threads % 32 == 0, sums=sums)
    return traced(text, "varied", (2, 1, 1), (threads, 1, 1), [memory.alloc(4), steps, last], how, memory)[0]
