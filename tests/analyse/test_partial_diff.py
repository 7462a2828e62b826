"""A comparison of partial results says what a comparison of the traces says."""

from __future__ import annotations

import pytest

from tests.support.messy_ranks import RANKS, messy_rank
from warplens.analyse.diff import CONFIDENCE, MARGIN, Difference, diff, diff_sides
from warplens.analyse.partial_diff import PartialSide, diff_grouping
from warplens.analyse.partial_sums import MAX_PARTIAL_CLUSTERS, partial_sums
from warplens.analyse.partial_tables import merge_partials
from warplens.analyse.quantile_sketch import ERROR
from warplens.trace.merge import merge
from warplens.trace.model import Trace


def job(**given: float) -> list[Trace]:
    return [messy_rank(rank, **given) for rank in range(RANKS)]


def sketched(before: list[Trace], after: list[Trace]) -> Difference:
    sides = []
    for parts in (before, after):
        meta = merge(parts).meta
        tables = (partial_sums(part, diff_grouping(meta)) for part in parts)
        sides.append(PartialSide(merge_partials(tables), meta))
    return diff_sides(*sides, margin=MARGIN, confidence=CONFIDENCE)


@pytest.mark.parametrize("launches", [12, 1], ids=["clusters of launches", "clusters of blocks"])
def test_the_verdicts_are_those_of_the_traces(launches: int) -> None:
    before, after = job(launches=launches), job(launches=launches, slower=1.5)
    found, exact = sketched(before, after), diff(merge(before), merge(after))
    assert found["load"].verdict == exact["load"].verdict
    assert {(one.kernel, one.region): one.verdict.value for one in found} == {
        (one.kernel, one.region): one.verdict.value for one in exact
    }
    for kernel, expected in zip(found.kernels, exact.kernels, strict=True):
        assert kernel.before_ns == pytest.approx(expected.before_ns)
        assert kernel.mhz == pytest.approx(expected.mhz, rel=0.05)
    known = {(one.kernel, one.region): one for one in exact}
    for one in found:
        other = known[one.kernel, one.region]
        if not (one.changes and one.kernel == "gemm"):
            continue  # the traces' own comparison takes one variant of several
        assert one.changes["mean"].change == pytest.approx(other.changes["mean"].change, abs=1e-9)
        assert one.changes["p50"].change == pytest.approx(other.changes["p50"].change, abs=2.1 * ERROR * 2)
        assert one.changes["mean"].low == pytest.approx(other.changes["mean"].low, abs=0.1)
        assert one.count_change == pytest.approx(other.count_change)


def test_the_same_dataset_twice_is_the_same() -> None:
    one = job(launches=12)
    assert {change.verdict.value for change in sketched(one, one) if change.before and change.before.count} == {"SAME"}


def test_the_table_is_bounded_however_many_launches_there_are() -> None:
    trace = messy_rank(0, launches=200)
    groups = set(partial_sums(trace, diff_grouping(trace.meta))["group"].to_pylist())
    assert len(groups - {""}) == MAX_PARTIAL_CLUSTERS
