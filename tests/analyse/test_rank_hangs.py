"""A job of ranks that hangs: the rank that holds it up is told from those that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import warplens as wl
from tests.support.hanging_kernel import hung_capture, lost_arrival
from warplens.analyse.rank_hangs import job_hang, job_lines
from warplens.commands import main
from warplens.decode import decode
from warplens.record.capture import HANG, Capture, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.io import save_rank
from warplens.trace.merge import merge
from warplens.trace.model import Trace

WAIT, PRODUCE = 1, 2


def inside(region: int) -> Callable[[TrackWriter, int, int], None]:
    return lambda writer, block, warp: writer.record(Kind.BEGIN, region, 2000)


def ended(kernel: str = "attn") -> Launch:
    (launch,) = hung_capture(inside(PRODUCE), warps=1, ended=lambda block, warp: True).launches
    return replace(launch, kernel=kernel, extra={})


def hanging(write: Callable[[TrackWriter, int, int], None], kernel: str = "attn") -> Launch:
    (launch,) = hung_capture(write, warps=5).launches
    return replace(launch, kernel=kernel)


def rank(number: int, launches: Sequence[Launch]) -> Trace:
    return decode(Capture(list(launches), hung_capture(inside(WAIT)).device, rank=number))


def test_a_rank_that_ended_fewer_launches_holds_up_the_others() -> None:
    late = rank(2, [ended(), hanging(inside(PRODUCE))])
    waiting = [rank(number, [ended(), ended(), hanging(inside(PRODUCE))]) for number in (0, 1, 3)]
    job = job_hang(merge([*waiting, late]))
    assert job is not None
    assert [one.rank for one in job.holding] == [2]
    assert job.lines() == [
        "rank 2 holds up the job: it is in attn (launch 1), in `produce` (attn.py:30)",
        "ranks 0-1, 3 are in attn (launch 2), in `produce` (attn.py:30) and wait for that",
    ]


def test_in_the_same_launch_those_that_wait_are_told_from_the_one_that_does_not() -> None:
    traces = [rank(number, [ended(), hanging(inside(PRODUCE if number == 1 else WAIT))]) for number in range(4)]
    job = job_hang(merge(traces))
    assert job is not None
    assert [one.rank for one in job.holding] == [1]
    assert job.lines()[1] == "ranks 0, 2-3 are in attn (launch 1), in `wait full` (attn.py:42) and wait for that"


def test_a_barrier_that_lost_an_arrival_in_its_own_block_is_no_wait_for_another_rank() -> None:
    job = job_hang(merge([rank(0, [hanging(inside(WAIT))]), rank(1, [hanging(lost_arrival)])]))
    assert job is not None
    assert [one.rank for one in job.holding] == [1]
    assert "in `produce` (attn.py:30)" in job.lines()[0], "the warp that others of the rank wait for"


def test_ranks_outside_recorded_kernels_wait_for_the_one_that_hangs() -> None:
    job = job_hang(merge([rank(0, [ended(), ended()]), rank(1, [ended(), hanging(inside(PRODUCE))])]))
    assert job is not None
    assert [one.rank for one in job.holding] == [1]
    assert job.lines()[1] == (
        "rank 0 is outside recorded kernels, after 2 recorded launches, the last one of attn and waits for that"
    )


def test_ranks_that_all_wait_wait_for_the_one_that_has_not_launched_the_kernel() -> None:
    job = job_hang(merge([rank(0, [ended(), hanging(inside(WAIT))]), rank(1, [ended()])]))
    assert job is not None
    assert [one.rank for one in job.holding] == [1]


def test_where_all_do_the_same_no_rank_is_blamed() -> None:
    job = job_hang(merge([rank(number, [hanging(inside(PRODUCE))]) for number in (0, 1, 3)]))
    assert job is not None
    assert not job.holding
    assert "the records do not tell which rank the others wait for" in job.lines()
    assert job.lines()[-1] == "rank 2 has written no trace"


def test_ranks_that_run_other_kernels_are_not_compared_by_their_number_of_launches() -> None:
    """As in pipeline parallelism."""
    first = rank(0, [ended("embed"), hanging(inside(PRODUCE), "attn")])
    second = rank(1, [hanging(inside(PRODUCE), "loss")])
    job = job_hang(merge([first, second]))
    assert job is not None
    assert not job.holding


@pytest.mark.parametrize("ranks", [1, 2])
def test_only_a_job_in_which_a_rank_hangs_is_told_of(ranks: int) -> None:
    assert job_hang(merge([rank(number, [ended()]) for number in range(ranks)])) is None
    assert job_hang(rank(0, [hanging(inside(WAIT))])) is None
    assert job_lines(rank(0, [hanging(inside(WAIT))]))[0].startswith("attn (launch 0) did not end")


def test_info_and_findings_of_a_job_name_the_rank_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run.warplens"
    for number in range(3):
        own = [ended()] * (1 + (number != 1)) + [hanging(inside(PRODUCE if number == 1 else WAIT))]
        save_rank(rank(number, own), folder, number)
    assert main(["info", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "rank 1 holds up the job" in said
    assert said.index("rank 1: attn (launch 1) did not end") < said.index("rank 0: attn (launch 2) did not end")
    found = wl.load(folder).findings()
    assert len([one for one in found if one.kind == "hang"]) == 1, "the ranks that wait are no findings of their own"
    assert "ranks 0, 2 are in attn (launch 2)" in next(iter(found)).what
    assert all(HANG in info.extra for info in wl.load(folder).meta.launches if info.launch == 2)
