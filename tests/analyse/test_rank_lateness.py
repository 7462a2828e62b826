"""Which rank is late into collectives, why, and what may not be claimed within the clocks' bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from tests.support.late_job import STEPS, late_job
from warplens.analyse.analysis import Answers
from warplens.analyse.collective_entries import JobCollectives
from warplens.analyse.findings import Findings, findings_from
from warplens.analyse.launch_skew import launch_skew
from warplens.analyse.rank_lateness import JOB, LATENESS, rank_lateness
from warplens.analyse.rank_path import RANK_PATH, rank_path
from warplens.analyse.registry import ANALYSES
from warplens.errors import UsageError
from warplens.trace.merge import merge
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankCall, RankClock, RankClocks


def late_findings(trace: Trace, **more: str) -> tuple[Findings, list[str]]:
    found = findings_from(Answers(trace, **more))
    named = [below for one in found for below in (one, *one.consequences)]
    return found, [one.what for one in named if one.kind == "late rank"]


def test_the_late_rank_is_named_with_the_region_that_keeps_it() -> None:
    trace = late_job({2: {"softmax": 40_000}})
    found = rank_lateness(JobCollectives.of(trace))
    assert found is not None
    (late,) = found.late_ranks
    assert (late.rank, late.late, late.collectives, late.late_ns) == (2, STEPS, STEPS, 40_000)
    assert late.cause is not None
    assert (late.cause.kernel, late.cause.region, late.cause.extra_ns) == ("attn", "softmax", 40_000)
    assert late.cause.region_extra_ns == pytest.approx(40_000)
    assert late.cause.windows == STEPS - 1, "nothing is known of the time before the first collective"
    assert [(entry.number, entry.rank) for entry in found.entries] == [(step, 2) for step in range(STEPS)]


def test_the_findings_name_the_late_rank_and_its_cause() -> None:
    found, (said,) = late_findings(late_job({1: {"load": 50_000}}))
    one = next(one for one in found if one.kind == "late rank")
    assert (one.kernel, one.region, one.evidence["rank"]) == ("attn", "load", 1)
    assert "Rank 1 is late into 8 of 8 collectives, by 50.0 µs" in said
    assert "clock bound 2.00 µs" in said
    assert "`load`" in said
    assert one.gain.low < 50 / 105 <= one.gain.high + 0.01


def test_nothing_is_claimed_within_the_clocks_bound() -> None:
    trace = late_job({2: {"softmax": 40_000}}, bound_ns=41_000)
    found = rank_lateness(JobCollectives.of(trace))
    assert found is not None
    assert not found.late_ranks
    assert not found.entries
    all_found, said = late_findings(trace)
    assert not said
    refuted = [one.what for one in all_found.refuted if one.kind == "late rank"]
    assert any("41.0 µs" in text for text in refuted)
    path = rank_path(JobCollectives.of(trace))
    assert path is not None
    assert path.uncertain == 1.0


def test_the_bound_is_that_of_the_pair_of_ranks() -> None:
    """Ranks 0 and 2 share a host; rank 1 is on another, whose clock is known less well."""
    trace = late_job({2: {"softmax": 40_000}}, ranks=3, hosts=2, bound_ns=100_000)
    found = rank_lateness(JobCollectives.of(trace))
    assert found is not None
    assert [late.rank for late in found.late_ranks] == [2]
    trace = late_job({1: {"softmax": 40_000}}, ranks=3, hosts=2, bound_ns=100_000)
    found = rank_lateness(JobCollectives.of(trace))
    assert found is not None
    assert not found.late_ranks


def test_time_outside_the_recorded_kernels_is_not_blamed_on_one() -> None:
    trace = late_job({}, pause={3: 70_000})
    found = rank_lateness(JobCollectives.of(trace))
    assert found is not None
    (late,) = found.late_ranks
    assert late.rank == 3
    assert late.cause is not None
    assert late.cause.kernel == ""
    _, (said,) = late_findings(trace)
    assert "Rank 3" in said
    assert "do not explain it" in said


def test_a_few_recorded_launches_tell_the_cause() -> None:
    """A profile records some launches of each kernel, and notes all collectives."""
    found = rank_lateness(JobCollectives.of(late_job({2: {"softmax": 40_000}}, steps=40, recorded=4)))
    assert found is not None
    (late,) = found.late_ranks
    assert late.late == 40
    assert late.cause is not None
    assert (late.cause.region, late.cause.extra_ns, late.cause.windows) == ("softmax", 40_000, 3)


def test_without_a_launch_between_collectives_the_cause_is_not_known() -> None:
    found, said = late_findings(late_job({2: {"softmax": 40_000}}, recorded=1))
    assert not said
    (undecided,) = (one.what for one in found.undecided if one.kind == "late rank")
    assert "Rank 2" in undecided
    assert "the cause is not known" in undecided


def test_two_late_ranks_are_both_named() -> None:
    found = rank_lateness(JobCollectives.of(late_job({1: {"load": 30_000}, 3: {"store": 60_000}})))
    assert found is not None
    assert [(late.rank, late.cause.region) for late in found.late_ranks if late.cause] == [(3, "store"), (1, "load")]


def test_lateness_is_held_against_the_clocks_of_the_ranks_and_not_of_an_sm() -> None:
    trace = late_job({}, pause={3: 70_000})
    poor = replace(trace.meta.clock, residual_p99_ns=10_000_000.0)
    found, said = late_findings(Trace(trace.spans, replace(trace.meta, clock=poor)))
    assert len(said) == 1
    assert "late rank" not in {one.kind for one in found.withheld}


def test_a_rank_that_was_killed_does_not_hide_the_skew_of_the_others() -> None:
    whole = late_job({2: {"softmax": 40_000}}, steps=6)
    trace = merge([whole.select(rank=0, launch=[0, 1]), whole.select(rank=[1, 2, 3])])
    skew = launch_skew(JobCollectives.of(trace))["attn"]
    assert (skew.launches, skew.ranks) == (6, 4)


def test_equal_ranks_are_not_late() -> None:
    found = rank_lateness(JobCollectives.of(late_job({})))
    assert found is not None
    assert not found.late_ranks
    assert found.collectives == STEPS


def test_chance_makes_no_late_rank() -> None:
    """Equal ranks whose times scatter by far more than the clocks' bound are all late at times."""
    random = np.random.default_rng(1)
    for _ in range(10):
        trace = late_job({}, ranks=2, scatter=lambda: int(random.exponential(20_000)))
        found = rank_lateness(JobCollectives.of(trace))
        assert found is not None
        assert found.late_ranks
        assert not late_findings(trace)[1]


def test_a_rank_may_be_late_into_the_first_collective_of_each_step_only() -> None:
    """A step has several collectives, and after the first nobody is late by more than chance."""
    random = np.random.default_rng(2)
    trace = late_job({2: {"softmax": 40_000}})
    clocks = RankClocks.of(trace.meta)
    more = [
        call._replace(group=f"bucket {at}", begin_ns=call.begin_ns + call.stay_ns + 200 * at + int(random.integers(99)))
        for call in clocks.calls
        for at in range(4)
    ]
    bounds = {rank: RankClock(0, 10.0) for rank in clocks.ranks}
    clocks = replace(clocks, ranks=bounds, calls=[*clocks.calls, *more]).with_worst()
    _, (said,) = late_findings(Trace(trace.spans, replace(trace.meta, rank_clocks=clocks.to_json())))
    assert "Rank 2" in said
    assert "`softmax`" in said


def test_one_long_start_hides_nothing_and_is_no_late_rank() -> None:
    """Rank 0 compiles for ten seconds before the first collective; rank 2 is late into every one."""

    def delayed(trace: Trace) -> Trace:
        clocks = RankClocks.of(trace.meta)
        calls = [
            call._replace(begin_ns=call.begin_ns + 10**10 * (call.rank == 0 and call.number == 0))
            for call in clocks.calls
        ]
        calls = [call._replace(begin_ns=call.begin_ns + 10**10 * (call.number > 0)) for call in calls]
        return Trace(trace.spans, replace(trace.meta, rank_clocks=replace(clocks, calls=calls).to_json()))

    _, said = late_findings(delayed(late_job({2: {"softmax": 40_000}}, steps=20)))
    assert len(said) == 1
    assert "Rank 2 is late into 20 of 20 collectives" in said[0]
    assert not late_findings(delayed(late_job({}, steps=20)))[1]


def test_a_trace_of_one_rank_has_no_late_rank() -> None:
    trace = make_trace([Span("load", 0, 10), Span("mma", 10, 10)])
    assert rank_lateness(JobCollectives.of(trace)) is None
    assert all(not len(Answers(trace).of(ANALYSES[name])) for name in ("lateness", "skew", "rank-path"))
    found, said = late_findings(trace)
    assert not said
    assert "the trace has one rank" in [one.what for one in found.refuted if one.kind == "late rank"]


def test_ranks_without_collectives_are_undecided_once() -> None:
    found, said = late_findings(late_job({2: {"softmax": 40_000}}, calls=False))
    assert not said
    assert [one.kernel for one in found.undecided if one.kind == "late rank"] == ["attn"]


def test_kernels_can_be_collectives() -> None:
    trace = late_job({2: {"softmax": 40_000}}, calls=False)
    _, (said,) = late_findings(trace, collectives="^other$")
    assert "Rank 2" in said
    assert "`softmax`" in said
    with pytest.raises(UsageError, match="regular expression"):
        late_findings(trace, collectives="(")


def test_the_critical_path_runs_along_the_late_ranks() -> None:
    trace = late_job({2: {"softmax": 40_000}})
    path = rank_path(JobCollectives.of(trace))
    assert path is not None
    assert list(path.ranks) == [2]
    assert path.uncertain == 0.0
    assert path.kernels[2]["attn"] == (STEPS - 1) * 95_000
    assert path.total_ns == path.collectives_ns + path.ranks[2]
    assert path.collectives_ns == (STEPS - 1) * 3_000
    assert [step.number for step in path.steps] == list(range(1, STEPS))
    table = RANK_PATH.table(JOB, path)
    assert "rank 2" in {row[0] for row in table.rows}


def test_groups_that_are_entered_in_different_orders_do_not_trap_the_path() -> None:
    trace = late_job({2: {"softmax": 40_000}}, ranks=2)
    crossed = [
        RankCall(0, "a", 0, "all_reduce", 100, 10), RankCall(0, "b", 0, "all_reduce", 200, 10),
        RankCall(1, "b", 0, "all_reduce", 120, 10), RankCall(1, "a", 0, "all_reduce", 220, 10),
    ]  # fmt: skip
    clocks = replace(RankClocks.of(trace.meta), calls=crossed)
    path = rank_path(JobCollectives.of(Trace(trace.spans, replace(trace.meta, rank_clocks=clocks.to_json()))))
    assert path is not None
    assert len(path.steps) <= 2


def test_the_skew_of_launches_is_told_with_its_bound() -> None:
    skew = launch_skew(JobCollectives.of(late_job({2: {"softmax": 40_000}})))
    assert skew["other"].median_ns == 40_000
    assert (skew["other"].last_rank, skew["other"].beyond, skew["other"].bound_ns) == (2, STEPS, 2_000)
    assert skew["attn"].worst_ns == 0
    assert skew["attn"].beyond == 0


def test_the_table_names_rank_and_cause() -> None:
    found = rank_lateness(JobCollectives.of(late_job({2: {"softmax": 40_000}})))
    assert found is not None
    ((rank, late, *_, cause),) = LATENESS.table(JOB, found).rows
    assert (rank, late, cause) == ("rank 2", "8 of 8 (100 %)", "attn, region softmax: 40.0 µs longer")
