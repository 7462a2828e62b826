"""The time axis of several ranks: the truth of simulated clocks lies within the stated bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.simulated_job import SECOND, UNIX, SimulatedJob
from warplens.errors import CaptureError
from warplens.record.rank_notes import WALL, ClockSample, RankNotes
from warplens.trace.clock_tie import tie_clocks, tie_samples
from warplens.trace.io import rank_part, save_rank
from warplens.trace.model import Trace
from warplens.trace.rank_axis import COLLECTIVES, SYNCHRONISED, UNVOUCHED, UNVOUCHED_NS, RankAxis
from warplens.trace.rank_clocks import RankClock, RankClocks, TiedHost


def errors(job: SimulatedJob, notes: dict[int, RankNotes]) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """For each pair of ranks: by how much the axis shows one moment at two times, and the bound on that."""
    axis = RankAxis(notes)
    moments = np.linspace(0, job.seconds * SECOND, 40)
    placed = {
        rank: axis.place(rank, str(rank), np.array([job.device[rank](at) for at in moments])) for rank in axis.notes
    }
    for one, other in combinations(placed, 2):
        (a, error_a, host_a), (b, error_b, host_b) = placed[one], placed[other]
        apart = 0 if job.host_of(one) == job.host_of(other) else host_a + host_b
        yield one, other, np.abs(a - b), error_a + error_b + apart


@pytest.mark.parametrize("asynchronous", [False, True], ids=["host", "device"])
def test_the_truth_lies_within_the_bound_in_99_of_100_jobs(asynchronous: bool) -> None:
    inside = 0
    bounds: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(100):
        job = SimulatedJob(seed, per_host=2, seconds=10.0, steps=30, asynchronous=asynchronous)
        found = list(errors(job, job.run()))
        inside += all((error <= bound).all() for _, _, error, bound in found)
        for one, other, _, bound in found:
            bounds[job.host_of(one) == job.host_of(other)].append(float(np.median(bound)))
    assert inside >= 99
    # A reading takes about 4 µs, and a collective about 40 µs after its last rank.
    assert np.median(bounds[True]) < 8_000
    assert np.median(bounds[False]) < 60_000


def test_a_drift_is_followed_and_not_taken_for_an_offset() -> None:
    samples = [ClockSample(at, at + at // 100_000 + 1_000_000, at + 4_000) for at in range(0, 10 * SECOND, SECOND)]
    tie = tie_samples(samples)
    later = np.array([9 * SECOND + 90_000 + 1_000_000])
    assert abs(int(tie(later)[0]) - 9 * SECOND) <= tie.error_ns(later)[0] < 5_000
    assert tie.line.drift == pytest.approx(-1e-5, abs=1e-6)
    assert tie.inverse(tie(later)) == pytest.approx(later, abs=2)


def test_far_from_any_reading_the_bound_grows() -> None:
    tie = tie_samples([ClockSample(at, at, at + 1000) for at in range(0, SECOND, SECOND // 10)])
    near, far = tie.error_ns(np.array([SECOND // 2, 100 * SECOND]))
    assert near < 1_000 < 50_000 < far


def test_bounds_that_contradict_each_other_are_not_trusted() -> None:
    time = np.array([0, SECOND])
    tie = tie_clocks(time, np.array([1_000_000, -10]), np.array([1_000_010, 0]), drift=1e-9)
    assert tie.error_ns(time).max() > 400_000


def test_hosts_without_common_collectives_are_as_good_as_their_daemons_say() -> None:
    job = SimulatedJob(3)
    vouched = job.notes(vouched_ns=10_000_000)
    assert [tie.method for tie in RankAxis(vouched).host_ties] == ["first host", SYNCHRONISED]
    for one, other, error, bound in errors(job, vouched):
        assert (error <= bound).all()
        assert (bound > 20_000_000).all() == (job.host_of(one) != job.host_of(other))
    unvouched = RankAxis(job.notes())
    assert unvouched.host_ties[1].method == UNVOUCHED
    assert unvouched.from_host(2, np.array([job.host[1](0)]))[1][0] >= UNVOUCHED_NS


def test_a_broadcast_bounds_one_side_only_and_two_roots_bound_both() -> None:
    job = SimulatedJob(4, per_host=1, latency_ns=50_000)
    for step in range(10):
        job.collective({0: step * SECOND, 1: step * SECOND + 1_000}, "broadcast", root=0)
    assert RankAxis(job.notes()).host_ties[1].method == UNVOUCHED
    for step in range(10, 20):
        job.collective({0: step * SECOND, 1: step * SECOND + 1_000}, "broadcast", root=1)
    assert RankAxis(job.notes()).host_ties[1].method == COLLECTIVES
    assert all((error <= bound).all() and bound.max() < 10**9 for *_, error, bound in errors(job, job.notes()))


def test_a_host_is_reached_over_another_one() -> None:
    job = SimulatedJob(5, hosts=3, per_host=1)
    for step in range(40):
        at = step * SECOND / 2
        job.collective({0: at, 1: at + job.random.exponential(1e5)})
        job.collective({1: at + 3e8, 2: at + 3e8 + job.random.exponential(1e5)})
    notes = job.notes()
    # The middle rank's even calls are of one group, its odd ones of the other.
    calls = notes[1].calls
    ours = [call._replace(group="01", number=call.number // 2) for call in calls[::2]]
    theirs = [call._replace(group="12", number=call.number // 2) for call in calls[1::2]]
    notes[0] = replace(notes[0], calls=[call._replace(group="01") for call in notes[0].calls])
    notes[1] = replace(notes[1], calls=ours + theirs)
    notes[2] = replace(notes[2], calls=[call._replace(group="12") for call in notes[2].calls])
    axis = RankAxis(notes)
    assert [len(tie.steps) for tie in axis.host_ties] == [0, 1, 2]
    assert all((error <= bound).all() for *_, error, bound in errors(job, notes))


def test_calls_that_do_not_belong_together_say_nothing() -> None:
    job = SimulatedJob(6, per_host=1)
    notes = job.run()
    shifted = [call._replace(operation="barrier") if call.number == 3 else call for call in notes[1].calls]
    axis = RankAxis({0: notes[0], 1: replace(notes[1], calls=shifted)})
    assert not axis.collectives
    assert axis.host_ties[1].method == UNVOUCHED


def write_ranks(folder: Path, job: SimulatedJob, notes: dict[int, RankNotes], at: float = 5 * SECOND) -> None:
    """A part of each rank with one launch that began at the same true time."""
    for rank in job.calls:
        trace = make_trace(
            [Span("load", 0, 1000, rank=rank, device=rank), Span("mma", 1000, 500, rank=rank, device=rank)]
        )
        meta = replace(trace.meta, origin_ns=job.device[rank](at))
        if rank in notes:
            meta = replace(meta, rank_notes={str(rank): notes[rank].to_json()})
        save_rank(Trace(trace.spans, meta), folder, rank)


def test_a_folder_is_read_on_one_axis_with_its_bounds(tmp_path: Path) -> None:
    job = SimulatedJob(7)
    write_ranks(tmp_path / "job", job, job.run())
    trace = wl.load(tmp_path / "job")
    clocks = RankClocks.of(trace.meta)
    begins = {info.rank: info.begin_ns for info in trace.launches}
    for one, other in combinations(begins, 2):
        assert abs(begins[one] - begins[other]) <= clocks.bound_ns(one, other) < 200_000
    assert max(job.device[rank](0) for rank in begins) - min(job.device[rank](0) for rank in begins) > 200_000
    spans = trace.spans.to_pandas()
    assert spans.start_ns.min() == 0
    assert list(spans.dur_ns) == [1000, 500] * 4
    for rank, some in spans.groupby("rank"):
        assert list(some.start_ns - begins[rank]) == [0, 1000]
    assert {call.rank for call in clocks.calls} == {0, 1, 2, 3}
    kept = trace.save(tmp_path / "one.warplens")
    assert RankClocks.of(wl.load(kept).meta) == clocks
    assert not trace.meta.rank_notes


def test_a_selected_rank_keeps_its_place_on_the_axis_of_all(tmp_path: Path) -> None:
    """Alone, a rank would be placed by its own clock only."""
    job = SimulatedJob(3)
    write_ranks(tmp_path / "job", job, job.run())
    whole = wl.load(tmp_path / "job")
    last = int((whole.numpy("start_ns") + whole.numpy("dur_ns")).max())
    for conditions in ({"rank": 0}, {"rank": [1, 3]}, {"time": (last, None)}):
        found, expected = wl.load(tmp_path / "job", **conditions), whole.select(**conditions)
        assert 0 < len(found) < len(whole)
        assert found.spans.drop_columns(["track"]).equals(expected.spans.drop_columns(["track"]))
        assert found.meta.launches == expected.meta.launches
        assert found.meta.origin_ns == whole.meta.origin_ns


def test_the_calls_lie_among_the_launches(tmp_path: Path) -> None:
    job = SimulatedJob(8)
    job.collective({rank: 5 * SECOND + 10_000 * (rank + 1) for rank in job.calls})
    write_ranks(tmp_path / "job", job, job.notes(vouched_ns=1000))
    trace = wl.load(tmp_path / "job")
    clocks = RankClocks.of(trace.meta)
    begins = {info.rank: info.begin_ns for info in trace.launches}
    for call in clocks.calls:
        assert call.begin_ns - begins[call.rank] == pytest.approx(10_000 * (call.rank + 1), abs=10_000)
        assert call.stay_ns > 0


def test_a_rank_without_notes_stays_where_it_is_and_is_not_compared(tmp_path: Path) -> None:
    job = SimulatedJob(9, hosts=1, per_host=3)
    notes = job.run()
    del notes[1]
    write_ranks(tmp_path / "job", job, notes)
    clocks = RankClocks.of(wl.load(tmp_path / "job").meta)
    assert clocks.bound_ns(0, 2) < 20_000
    assert clocks.bound_ns(0, 1) >= UNVOUCHED_NS
    assert clocks.bound_ns(0, 99) == float("inf")


def test_times_of_the_host_are_placed_by_its_unix_time(tmp_path: Path) -> None:
    """Launches of Triton's interpreter are timed by it."""
    job = SimulatedJob(10, hosts=1)
    for rank, notes in job.run().items():
        trace = make_trace([Span("load", 0, 1000, rank=rank)])
        launches = tuple(replace(info, clock="cpu") for info in trace.launches)
        notes = replace(notes, samples={WALL: notes.samples[WALL]})
        meta = replace(
            trace.meta, launches=launches, origin_ns=job.wall[0](SECOND), rank_notes={str(rank): notes.to_json()}
        )
        save_rank(Trace(trace.spans, meta), tmp_path / "job", rank)
    trace = wl.load(tmp_path / "job")
    assert RankClocks.of(trace.meta).bound_ns(0, 1) < 2_000
    assert abs(trace.launches[0].begin_ns - trace.launches[1].begin_ns) < 2_000


@pytest.mark.parametrize("harm", ["host", "samples", "calls", "rank", "order"])
def test_notes_that_are_malformed_are_refused(tmp_path: Path, harm: str) -> None:
    job = SimulatedJob(11, hosts=1, per_host=2)
    document = job.run()[0].to_json()
    name = "0"
    if harm == "host":
        document["host"]["key"] = 5
    elif harm == "samples":
        document["samples"]["0"][0] = [1, 2]
    elif harm == "calls":
        document["calls"][0][1] = -1
    elif harm == "rank":
        name = "first"
    else:
        document["samples"]["0"][0] = [5, UNIX, 4]
    trace = make_trace([Span("load", 0, 10)])
    trace.meta = replace(trace.meta, rank_notes={name: document})
    save_rank(trace, tmp_path, 0)
    with pytest.raises(CaptureError, match="rank_notes"):
        wl.load(rank_part(tmp_path, 0))


def test_an_unbounded_host_does_not_disturb_ranks_of_one_host() -> None:
    clocks = RankClocks(
        {0: RankClock(0, 5.0), 1: RankClock(0, 7.0), 2: RankClock(1, 1.0)},
        [TiedHost("a"), TiedHost("b", error_ns=float("inf"))],
    )
    with np.errstate(all="raise"):
        bounds = clocks.bounds()
    assert bounds[0, 1] == clocks.bound_ns(0, 1) == 12.0
    assert bounds[0, 2] == clocks.bound_ns(0, 2) == float("inf")
