"""Partial results of pieces merge into the statistics of the whole, however it is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from tests.support.messy_ranks import RANKS, assert_same_statistics, messy_rank
from warplens.analyse.partial_statistics import cells_of, grouping_of, statistics_of
from warplens.analyse.partial_sums import partial_sums
from warplens.analyse.partial_tables import SCHEMA, Measure, merge_partials
from warplens.analyse.statistics import GROUPS
from warplens.errors import UsageError
from warplens.trace.merge import merge
from warplens.trace.model import Trace

WHOLE = merge([messy_rank(rank) for rank in range(RANKS)])


def pieces(trace: Trace, many: int) -> list[Trace]:
    tracks = np.unique(trace.numpy("track"))
    return [trace.select(track=part.tolist()) for part in np.array_split(tracks, many)]


@pytest.mark.parametrize("merge_variants", [False, True])
@pytest.mark.parametrize("by", GROUPS)
def test_merged_pieces_give_the_statistics_of_the_whole(by: str, merge_variants: bool) -> None:
    grouping = grouping_of(WHOLE.meta, by, merge_variants=merge_variants)
    merged = merge_partials(partial_sums(piece, grouping) for piece in pieces(WHOLE, 5))
    found = statistics_of(merged, WHOLE.meta, grouping)
    assert_same_statistics(found, WHOLE.stats(by, merge_variants=merge_variants))


def test_the_merged_table_does_not_depend_on_how_the_trace_was_divided() -> None:
    grouping = grouping_of(WHOLE.meta, "region")
    exact = [name for name in SCHEMA.names if not name.startswith("real")]
    tables = [
        merge_partials(partial_sums(piece, grouping) for piece in pieces(WHOLE, many)).sort_by(
            [(name, "ascending") for name in SCHEMA.names[:5]]
        )
        for many in (1, 3, 40)
    ]
    assert tables[0].select(exact).equals(tables[1].select(exact))
    assert tables[0].select(exact).equals(tables[2].select(exact))


def test_sums_of_squares_are_exact_beyond_64_bits() -> None:
    durations = [(1 << 52) - 1, (1 << 52) - 3, 7]
    trace = make_trace([Span("a", at, 1, block=at, cycles=one) for at, one in enumerate(durations)])
    grouping = grouping_of(trace.meta, "region")
    (cell,) = cells_of(merge_partials(partial_sums(piece, grouping) for piece in pieces(trace, 3)))
    assert int(cell.column(Measure.CYCLES, "squares")[0]) == sum(one * one for one in durations)
    row = statistics_of(merge_partials([partial_sums(trace, grouping)]), trace.meta, grouping)["a"]
    assert (row.total, row.min, row.max) == (sum(durations), 7, (1 << 52) - 1)


def test_a_small_spread_around_a_large_mean_is_not_lost() -> None:
    trace = make_trace([Span("a", at, 1, block=at, cycles=(1 << 40) + at % 2) for at in range(10)])
    grouping = grouping_of(trace.meta, "region")
    assert statistics_of(partial_sums(trace, grouping), trace.meta, grouping)["a"].std == 0.5


def test_launches_without_lifetimes_count_from_the_first_begin_to_the_last_end() -> None:
    bare = tuple(replace(info, busy_cycles=0, busy_ns=0) for info in WHOLE.meta.launches)
    trace = Trace(WHOLE.spans, replace(WHOLE.meta, launches=bare))
    grouping = grouping_of(trace.meta, "region")
    merged = merge_partials(partial_sums(piece, grouping) for piece in pieces(trace, 4))
    assert_same_statistics(statistics_of(merged, trace.meta, grouping), trace.stats())


def test_nothing_and_an_unknown_group() -> None:
    grouping = grouping_of(WHOLE.meta, "region", selected=True)
    assert len(statistics_of(merge_partials([]), WHOLE.meta, grouping)) == 0
    with pytest.raises(UsageError, match=r"cannot group by 'rnk' \(did you mean 'rank'"):
        grouping_of(WHOLE.meta, "rnk")
