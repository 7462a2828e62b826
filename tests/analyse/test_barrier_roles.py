"""Roles and the critical path along the edges of barriers."""

from __future__ import annotations

import random

import pytest

from tests.support.barrier_pipeline import run_pipeline
from tests.support.builders import Span, make_trace
from tests.support.simulated_mbarrier import BarrierWorld, pipeline
from warplens.analyse.barrier_roles import barrier_roles, warp_duties
from warplens.analyse.critical_path import critical_path
from warplens.analyse.findings import findings
from warplens.decode import decode
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.trace.barrier_rows import NO_WAIT
from warplens.trace.model import Trace


def barrier(region: str, at: int, warp: int, word: BarrierWord, released_by: int = NO_WAIT) -> Span:
    return Span(region, at, warp=warp, kind="value", value=float(word.pack()), released_by=released_by)


def with_decoy(edges: bool) -> Trace:
    """Warp 1 waits for warp 0's load; warp 2 ends something else right before the wait ends."""
    arrive, wait = BarrierWord(Operation.ARRIVE, 64), BarrierWord(Operation.WAIT, 64, 0)
    rows = [Span("load", 0, 1000, warp=0), Span("wait", 10, 1010, warp=1), Span("use", 1020, 480, warp=1)]
    rows += [Span("decoy", 5, 1014, warp=2)]
    if edges:
        rows += [barrier("arrive", 1000, 0, arrive), barrier("wait", 10, 1, wait, released_by=4)]
    order = sorted(range(len(rows)), key=lambda at: (rows[at].warp, rows[at].start, -rows[at].dur))
    place = {old: new for new, old in enumerate(order)}
    moved = [rows[at] for at in order]
    return make_trace([
        Span(**{**row.__dict__, "released_by": place.get(row.released_by, row.released_by)}) for row in moved
    ])  # fmt: skip


def test_the_critical_path_follows_the_arrival_and_not_what_ended_at_the_same_time() -> None:
    guessed, known = (critical_path(with_decoy(edges))["kernel"] for edges in (False, True))
    assert guessed["decoy"].ns == pytest.approx(1014, abs=2), "without barrier records the last end is the best guess"
    assert known["load"].ns == pytest.approx(1000, abs=2)
    assert known["decoy"].ns == 0
    assert known["use"].ns == pytest.approx(480, abs=2)


def test_the_path_through_a_copy_goes_to_its_issue_and_counts_the_flight_as_the_wait() -> None:
    copy, wait = BarrierWord(Operation.COPY, 64), BarrierWord(Operation.WAIT, 64, 0)
    rows = [
        Span("issue", 0, 100, warp=0), barrier("copy issue", 100, 0, copy),
        Span("other", 0, 600, warp=1), Span("wait", 600, 400, warp=1), barrier("wait", 600, 1, wait, released_by=1),
    ]  # fmt: skip
    path = critical_path(make_trace(rows))["kernel"]
    assert path["issue"].ns == pytest.approx(100, abs=2)
    assert path["wait"].ns == pytest.approx(900, abs=2), "the copy was under way from 100 to 1000"
    assert path["other"].ns == 0


@pytest.mark.parametrize("copies", [True, False])
def test_roles_come_from_who_released_whom(copies: bool) -> None:
    chance = random.Random(1)
    counts, programs = pipeline(2, 16, 3, lambda: chance.randint(50, 300), (lambda: 600) if copies else None)
    world = BarrierWorld(counts)
    world.run(programs)
    trace = decode(world.capture())
    assert [(duty.warp, duty.role) for duty in warp_duties(trace)] == [
        (0, "producer"), (1, "consumer"), (2, "consumer"), (3, "consumer")
    ]  # fmt: skip
    full = [role for role in barrier_roles(trace) if role.barrier in (0x400, 0x408)]
    empty = [role for role in barrier_roles(trace) if role.barrier in (0x410, 0x418)]
    assert {role.producers for role in full} == {(0,)}
    assert {role.consumers for role in full} == {(1, 2, 3)}
    assert {role.consumers for role in empty} == {(0,)}
    assert all(role.one_way for role in full)
    assert {role.kind for role in full} == {"copy" if copies else "arrive"}


@pytest.mark.parametrize(("slow", "fast"), [(0, 1), (1, 0)])
def test_the_side_that_keeps_the_other_waiting_is_known(slow: int, fast: int) -> None:
    times = {slow: 2000, fast: 100}
    counts, programs = pipeline(2, 12, 1, lambda: times[1], None, lambda: times[0])
    world = BarrierWorld(counts)
    world.run(programs)
    duties = {duty.warp: duty for duty in warp_duties(decode(world.capture()))}
    assert duties[fast].waited_ns > 10 * max(duties[slow].waited_ns, 1)
    assert duties[slow].kept_waiting_ns == duties[fast].waited_ns
    assert [duties[0].role, duties[1].role] == ["producer", "consumer"]


def test_a_trace_without_barrier_records_has_no_roles() -> None:
    trace = make_trace([Span("load", 0, 10), Span("wait", 10, 10, warp=1)])
    assert barrier_roles(trace) == warp_duties(trace) == ()
    assert trace.edges.num_rows == 0


def test_a_real_pipelines_roles_are_known() -> None:
    trace = run_pipeline(blocks=2, tiles=9, work=100).trace
    assert {duty.warp: duty.role for duty in warp_duties(trace)} == {
        0: "producer", 1: "consumer", 2: "consumer", 3: "consumer"
    }  # fmt: skip
    assert sum(region.share for region in critical_path(trace)["tile_sums"].regions) <= 1.0 + 1e-9


def test_a_producer_that_waits_for_its_own_copies_is_no_consumer() -> None:
    copy, wait = BarrierWord(Operation.COPY, 64), BarrierWord(Operation.WAIT, 64, 0)
    producer, consumer = list[Span](), list[Span]()
    for step in range(8):
        at, issue = 10_000 * step, 3 * step
        producer += [barrier("issue", at + 100, 0, copy), Span("own wait", at + 200, 9000, warp=0)]
        producer += [barrier("own wait", at + 200, 0, wait, released_by=issue)]
        consumer += [Span("use", at + 50, 900, warp=1), Span("wait", at + 1000, 8200, warp=1)]
        consumer += [barrier("wait", at + 1000, 1, wait, released_by=issue)]
    trace = make_trace(producer + consumer)
    duties = {duty.warp: duty for duty in warp_duties(trace)}
    assert (duties[0].role, duties[1].role) == ("producer", "consumer")
    assert (duties[0].own_waits, duties[1].own_waits) == (("own wait",), ())
    first = findings(trace)[0]
    assert (first.kind, first.region) == ("slow producer", "wait"), "it does not wait for the consumer"
