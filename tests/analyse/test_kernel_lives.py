"""The lifetimes of one variant are a part of those of the trace, and no question about a variant passes over others."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.any_trace import any_trace
from tests.support.small_launches import small_launches
from warplens.analyse.analysis import Answers
from warplens.analyse.findings import findings
from warplens.analyse.groups import in_groups
from warplens.analyse.kernel_lives import KernelLives, each_variant, lives_of
from warplens.analyse.lifetimes import Blocks, Lifetimes
from warplens.analyse.occupancy import achieved
from warplens.analyse.region_cells import RegionCells, TrackExtents
from warplens.analyse.registry import ANALYSES
from warplens.decode import decode
from warplens.record.capture import VARIANT
from warplens.trace.model import Trace


def _trace(launches: int, variants: bool) -> Trace:
    """A trace with one launch of each of so many kernels, or variants of one."""
    made = small_launches(launches, blocks=2)
    return decode(
        replace(
            made,
            launches=[
                replace(one, extra={VARIANT: {"BLOCK": at}}) if variants else replace(one, kernel=f"k{at}", extra={})
                for at, one in enumerate(made.launches)
            ],
        )
    )


@settings(max_examples=100, deadline=None)
@given(trace=any_trace())
def test_a_part_has_what_the_whole_has_of_a_variant(trace: Trace) -> None:
    whole = Lifetimes(trace)
    for label, part in [*each_variant(whole), *((name, lives_of(whole, name)) for name in whole.kernels)]:
        mine = whole.tracks_of(label)
        assert (part.tracks == np.flatnonzero(mine)).all()
        assert (part.has_regions == whole.has_regions[mine]).all()
        for name in ("sm", "warp"):
            assert (getattr(part, name) == getattr(whole, name)[mine]).all()
        for extent in fields(TrackExtents):
            assert (getattr(part.extents, extent.name) == getattr(whole.extents, extent.name)[mine]).all()
        launches = whole.launches_of(label)
        assert part.launches == tuple(whole.launches[at] for at in launches)
        assert (launches[part.launch] == whole.launch[mine]).all()
        assert list(part.launches_of(label)) == list(range(len(launches)))
        assert part.tracks_of(label).all()
        of_whole = np.flatnonzero(np.isin(whole.blocks.launch, launches))
        for column in fields(Blocks):
            values = getattr(part.blocks, column.name)
            values = launches[values] if column.name == "launch" else values
            assert (values == getattr(whole.blocks, column.name)[of_whole]).all(), column.name
        assert (of_whole[part.block] == whole.block[mine]).all()
        here = mine[whole.cells.track]
        for column in fields(RegionCells):
            values = getattr(part.cells, column.name)
            values = part.tracks[values] if column.name == "track" else values
            assert (values == getattr(whole.cells, column.name)[here]).all(), column.name
        rows = part.rows_of(np.arange(len(part)))
        assert (rows == np.flatnonzero(mine[whole.of_row])).all()
        assert (part.tracks[part.track_of(rows)] == whole.of_row[rows]).all()
        chosen = np.arange(len(whole.regions)) % 2 == 0
        some = np.arange(len(part)) % 2 == 0
        of_some = np.isin(np.arange(len(whole)), part.tracks[some])
        assert (part.spans_in(some, chosen) == whole.spans_in(of_some, chosen)).all()


def test_the_only_variant_is_the_whole() -> None:
    whole = Lifetimes(_trace(1, variants=True))
    assert lives_of(whole, next(iter(whole.variants))) is whole


def test_groups_are_in_order_and_may_be_empty() -> None:
    found = in_groups(np.array([2, 0, 2, 0]), 4)
    assert [one.tolist() for one in found] == [[1, 3], [], [0, 2], []]
    assert in_groups(np.zeros(0, np.int64), 0) == []


def test_no_analysis_makes_a_mask_of_all_tracks_for_each_variant() -> None:
    for variants in (False, True):
        trace = _trace(12, variants)
        answers = Answers(trace)
        for one in ANALYSES.values():
            answers.of(one)
        findings(trace)
        whole = Lifetimes.of(trace)
        parts = whole.trace.derived[KernelLives]
        assert all(isinstance(part, KernelLives) for part in parts.values())
        assert len(parts) == 12
        assert whole._tracks_of[0] == ""


def test_occupancy_looks_at_the_tracks_of_each_launch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    whole_column = Lifetimes.per_track

    def per_track(lives: Lifetimes, name: str) -> np.ndarray:
        asked.append(len(lives))
        return whole_column(lives, name)

    monkeypatch.setattr(Lifetimes, "per_track", per_track)
    counts = []
    for launches in (4, 40):
        trace = decode(small_launches(launches, blocks=2))
        Lifetimes.of(trace)
        asked.clear()
        assert len(achieved(trace)) == 1
        counts.append(len(asked))
    assert counts[0] == counts[1], "a column of all tracks was read for each launch"
