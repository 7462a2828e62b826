"""What grows with a trace: time and memory in step with it, and no faster."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import growth_of_verbs
from benchmarks.lib import grown_shapes
from tests.support.small_launches import small_launches
from warplens.analyse import statistics, waits
from warplens.analyse.findings import findings
from warplens.analyse.hypotheses import unmarked_time
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.producers import Matches
from warplens.decode import decode
from warplens.trace.model import Trace


def _find(trace: Trace) -> None:
    assert unmarked_time.CAUSE in {one.kind for one in findings(trace).supported}


def test_memory_of_findings_grows_with_the_regions_and_no_faster() -> None:
    few, many = (_peak(_find, _trace(regions)) for regions in (500, 4000))
    assert many / few < 20, "8 times the regions; with a table of all pairs of regions it would be 64 times"


def test_what_regions_wait_for_takes_no_table_of_all_pairs_of_regions() -> None:
    trace = _trace(3000)
    lives, rows = Lifetimes.of(trace), np.arange(40)
    found = Matches(rows, np.full(40, -1), *3 * [np.zeros(40, bool)])
    assert waits._regions(lives, found, 1.0)  # also computes what every analysis shares
    assert _peak(lambda _: waits._regions(lives, found, 1.0), trace) < 8 * 3000**2 / 4


def _peak(work: Callable[[Trace], object], trace: Trace) -> int:
    tracemalloc.start()
    try:
        work(trace)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _trace(regions: int) -> Trace:
    return decode(small_launches(1, blocks=2, spans=regions))


def test_regions_with_few_spans_are_not_handed_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = decode(small_launches(1, blocks=40, spans=600))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    handed: list[object] = []

    class Counting(ThreadPoolExecutor):
        def map(self, work: Any, *items: Any, **options: Any) -> Any:
            handed.extend(items[0])
            return super().map(work, *items, **options)

    monkeypatch.setattr(statistics, "ThreadPoolExecutor", Counting)
    assert len(trace.stats().rows) == 600
    assert len(handed) <= 2, "at most the two columns as a whole"


_LARGE = ("values", "instants")
"""Spread over eight warps."""


@pytest.mark.parametrize("shape", [*grown_shapes.CAPTURES, "ranks"])
def test_every_shape_is_a_trace_of_its_size(shape: str, tmp_path: Path) -> None:
    path = growth_of_verbs.make_trace_file(shape, 8 if shape in _LARGE else 3, tmp_path / "t.warplens")
    for verb in ("info", "findings"):
        assert growth_of_verbs.seconds_of(verb, path, tmp_path) > 0
