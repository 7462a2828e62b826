"""The durations that comparisons draw samples from: the same as those of the rows one by one, read once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.mark_programs import programs
from tests.support.synthetic_capture import make_capture
from warplens.analyse import resample
from warplens.analyse.diff import TraceSide, diff
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.resample import Sample
from warplens.decode import decode
from warplens.trace import columns, model, row_groups
from warplens.trace.arrays import to_arrow
from warplens.trace.columns import TraceFile
from warplens.trace.model import Trace

SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
LONGER = 1 << 33
"""A duration that does not fit 32 bits."""


def changed(trace: Trace, seed: int, more: int = 0) -> Trace:
    """The trace with some spans that never ended, and with longer durations in the first rows."""
    random, table = np.random.default_rng(seed), trace.spans
    cycles = trace.numpy("dur_cycles").copy()
    cycles[: int(random.integers(3))] += more
    for name, values in (("open", random.random(len(trace)) < 0.2), ("dur_cycles", cycles)):
        table = table.set_column(table.column_names.index(name), name, to_arrow(values))
    return Trace(table, trace.meta)


def rows_of(trace: Trace, kernel: str, region: str) -> Any:
    """The rows of a region's spans that ended in a kernel."""
    ended = trace.of_kind("span") & ~trace.numpy("open")
    here = [of == kernel and name == region for of, name in zip(*names(trace), strict=True)]
    return np.flatnonzero(ended & np.array(here))


def names(trace: Trace) -> list[list[str]]:
    return [trace.column(name).to_pylist() for name in ("kernel", "region")]


def check(sample: Sample, trace: Trace, rows: Any, cluster: Any, cap: float) -> None:
    """Compare a sample with what the whole columns give."""
    of = cluster[np.searchsorted(trace.runs("track").starts, rows, side="right") - 1]
    assert (sample.count == np.bincount(of, minlength=sample.clusters)).all()
    for unit, column in (("cycles", "dur_cycles"), ("ns", "dur_ns")):
        values = trace.numpy(column)[rows]
        assert (sample.subsample(unit) == values[:: sample.step]).all()
        assert (sample.totals(unit) == np.bincount(of, values, sample.clusters)).all()
        cut = np.bincount(of, np.minimum(values, cap), sample.clusters)
        assert sample.totals(unit, cap) == pytest.approx(cut, rel=1e-12)
        edges = np.array([-0.5, 2.5, 10.5, 1e9])
        at = np.clip(np.searchsorted(edges, values[:: sample.step], side="right") - 1, 0, 2)
        counts = np.bincount(of[:: sample.step] * 3 + at, minlength=3 * sample.clusters)
        assert (sample.histogram(unit, edges).ravel() == counts).all()


@pytest.mark.parametrize("native", ["0", "1"])
@SETTINGS
@given(spans=programs(loose=True, max_tracks=8), seed=st.integers(0, 99), more=st.sampled_from([0, LONGER]))
def test_samples_hold_the_spans_of_each_region(native: str, spans: list[Span], seed: int, more: int) -> None:
    trace = changed(make_trace(spans), seed, more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPLENS_NATIVE", native)
        patch.setattr(model, "BLOCK_ROWS", 10)
        patch.setattr(resample, "_MAX_SPANS", 4)
        side = TraceSide(trace)
        for kernel in side.kernels:
            cluster, _ = resample.clusters_of(Lifetimes.of(trace), kernel)
            found = side.samples(kernel)
            rows = {region: rows_of(trace, kernel, region) for region in trace.regions}
            assert found.keys() == {region for region, here in rows.items() if len(here)}
            for region, sample in found.items():
                check(sample, trace, rows[region], cluster, cap=7.25)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files of several row groups, of which two are read at a time."""
    monkeypatch.setattr(row_groups, "MOST_ROWS", 300)
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", 600)
    monkeypatch.setattr(model, "BLOCK_ROWS", 200)
    traces = (decode(make_capture(2000, blocks=10, warps=2, sms=3, seed=seed)) for seed in (0, 1))
    return [trace.save(tmp_path / f"{at}.warplens") for at, trace in enumerate(traces)]


def test_files_compare_as_the_same_rows_in_memory(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = diff(*(Trace(wl.load(file).spans, wl.load(file).meta) for file in files)).to_json()
    assert diff(*map(wl.load, files)).to_json() == whole
    monkeypatch.setenv("WARPLENS_NATIVE", "0")
    assert diff(*map(wl.load, files)).to_json() == whole


def test_a_comparison_reads_each_column_once(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[tuple[Path, str, int]] = Counter()
    read = TraceFile.read

    def counted(file: TraceFile, wanted: Any, groups: Any = None) -> Any:
        seen.update((file.path, name, group) for name in wanted for group in groups)
        return read(file, wanted, groups)

    monkeypatch.setattr(TraceFile, "read", counted)
    diff(*map(wl.load, files))
    assert len({group for _, _, group in seen}) > 4
    # The names of regions are needed before their rows.
    assert {name for (_, name, _), times in seen.items() if times > 1} == {"region"}
    assert max(seen.values()) == 2
