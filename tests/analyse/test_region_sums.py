"""Durations that are gathered block by block: the same statistics as over all rows at once, in little memory."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from tests.support.synthetic_capture import make_capture
from warplens import native
from warplens.analyse import region_sums, statistics
from warplens.decode import decode
from warplens.trace import model
from warplens.trace.arrays import to_arrow
from warplens.trace.model import Trace


def _with_open_spans(trace: Trace) -> Trace:
    """The trace with some spans that never ended."""
    table = trace.spans
    is_open = np.random.default_rng(5).random(len(trace)) < 0.1
    return Trace(table.set_column(table.column_names.index("open"), "open", to_arrow(is_open)), trace.meta)


@pytest.mark.parametrize("by", ["region", "kernel", "launch"])
def test_blocks_of_rows_give_the_same_statistics(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = _with_open_spans(decode(make_capture(20_000, blocks=12, warps=4, sms=5)))
    monkeypatch.setattr(model, "BLOCK_ROWS", 700)
    blocks = trace.stats(by)
    monkeypatch.setattr(statistics, "MOST_GROUPS", 0)
    whole = trace.stats(by)
    assert len(blocks) == len(whole) == 4
    for one, other in zip(blocks.to_json()["rows"], whole.to_json()["rows"], strict=True):
        assert one["open"] > 0
        for name, value in other.items():
            same = math.isclose(one[name], value, rel_tol=1e-12) if isinstance(value, float) else one[name] == value
            assert same, (name, one[name], value)


@pytest.mark.skipif(native.load() is None, reason=f"no native library: {native.why_not()}")
@pytest.mark.parametrize("width", [1 << 16, 200])
def test_numpy_gives_the_same_statistics_as_c(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of durations that are counted, and of those that are kept because they are longer."""
    trace = _with_open_spans(decode(make_capture(20_000, blocks=12, warps=4, sms=5)))
    monkeypatch.setattr(region_sums, "_WIDTH", width)
    found = trace.stats()
    monkeypatch.setenv("WARPLENS_NATIVE", "0")
    trace.derived.clear()  # what the first statistics left
    assert trace.stats().to_json() == found.to_json()
    monkeypatch.setattr(statistics, "MOST_GROUPS", 0)
    for one, other in zip(found, trace.stats(), strict=True):
        assert one.std == pytest.approx(other.std, rel=1e-12)
        assert (one.p50, one.p95, one.p99, one.total) == (other.p50, other.p95, other.p99, other.total)


def test_durations_that_need_64_bits_are_exact() -> None:
    trace = decode(make_capture(4000, blocks=4, warps=2, sms=3))
    table = trace.spans
    longer = to_arrow(trace.numpy("dur_cycles") + (1 << 33))
    longer_trace = Trace(table.set_column(table.column_names.index("dur_cycles"), "dur_cycles", longer), trace.meta)
    assert longer_trace.stats()["load"].min == trace.stats()["load"].min + (1 << 33)


def test_statistics_need_little_memory_beside_the_columns() -> None:
    trace = decode(make_capture(1_000_000))
    trace.spans  # noqa: B018  # all columns
    tracemalloc.start()
    trace.stats()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * len(trace)
