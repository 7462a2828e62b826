"""The C passes over the rows give the numbers that numpy gives, for tracks of any shape."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.builders import Span, make_trace
from tests.support.mark_programs import programs
from warplens import native
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.overlap import overlap
from warplens.analyse.region_cells import RegionCells, TrackExtents
from warplens.analyse.timeline import innermost, strips
from warplens.trace import model
from warplens.trace.model import Trace

pytestmark = pytest.mark.skipif(native.load() is None, reason=f"no native library: {native.why_not()}")
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def rows_of(cells: RegionCells) -> list[tuple[int, ...]]:
    return sorted(zip(*(getattr(cells, field.name).tolist() for field in fields(RegionCells)), strict=True))


@SETTINGS
@given(spans=programs(loose=True, max_tracks=8))
def test_cells_and_extents(spans: list[Span]) -> None:
    trace = make_trace(spans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "BLOCK_ROWS", 10)
        found = Lifetimes(trace)
        _ = found.cells
        patch.setenv("WARPLENS_NATIVE", "0")
        expected = Lifetimes(trace)
        assert rows_of(found.cells) == rows_of(expected.cells)
        assert (found.detached == expected.detached).all()
        for field in fields(TrackExtents):
            assert (getattr(found, field.name) == getattr(expected, field.name)).all(), field.name


@SETTINGS
@given(spans=programs(loose=True, max_tracks=8))
def test_cells_add_up_what_each_span_has(spans: list[Span]) -> None:
    lives = Lifetimes(make_trace(spans))
    many = len(lives.regions)
    for cell, row in ((lives.cells.exclusive, lives.exclusive), (lives.cells.own, lives.own)):
        expected = np.bincount(lives.region, weights=row, minlength=many)
        assert (np.bincount(lives.cells.region, cell, many) == expected).all()


@SETTINGS
@given(spans=programs(loose=True, max_tracks=8))
def test_overlap_of_regions(spans: list[Span]) -> None:
    table, meta = (trace := make_trace(spans)).spans, trace.meta
    found = overlap(Trace(table, meta))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPLENS_NATIVE", "0")
        assert overlap(Trace(table, meta)) == found


@SETTINGS
@given(spans=programs(loose=True, max_tracks=8))
def test_time_of_regions_over_time(spans: list[Span]) -> None:
    trace = make_trace(spans)
    for by, time in (("sm", None), ("warp", (3, 20))):
        found, expected = strips(trace, by, 7, time), strips(trace, by, 7, time, innermost(trace))
        assert found.time == pytest.approx(expected.time)
        assert strips(trace, by, 7, time, most=1).time == pytest.approx(expected.time[:1])
