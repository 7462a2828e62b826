"""Threads that read one file, as when two parts of one trace are compared."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import warplens as wl
from tests.support.builders import make_trace
from warplens.trace import columns, io


class OneAtATime(columns.pq.ParquetFile):  # type: ignore[misc]
    """Arrow's reader corrupts memory if two threads use it; this one says so."""

    inside = 0

    def _alone(self, read: Any, *arguments: Any, **options: Any) -> Any:
        type(self).inside += 1
        try:
            time.sleep(0.01)
            assert type(self).inside == 1, "two threads read at once"
            return read(*arguments, **options)
        finally:
            type(self).inside -= 1

    def read(self, *arguments: Any, **options: Any) -> Any:
        return self._alone(super().read, *arguments, **options)

    def read_row_groups(self, *arguments: Any, **options: Any) -> Any:
        return self._alone(super().read_row_groups, *arguments, **options)


def test_a_file_is_read_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns.pq, "ParquetFile", OneAtATime)
    path = make_trace([("load", at * 10, 5, 0, at % 2) for at in range(40)]).save(tmp_path / "t.warplens")
    trace = wl.load(path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: len(trace.numpy(name)), ("start_ns", "dur_ns", "start_cycle", "dur_cycles")))
    assert found == [40] * 4
    again = wl.load(path)
    assert wl.diff(again, again).to_json()["verdict"], "its two sides are read in two threads"


def test_a_small_trace_is_saved_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "ThreadPoolExecutor", None)
    trace = make_trace([("load", 0, 10, 0, 0)])
    assert wl.load(trace.save(tmp_path / "small.warplens")).spans.equals(trace.spans)
