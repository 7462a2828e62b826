"""The local engine answers as the whole trace does, with a few parts in memory at a time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pytest

import warplens as wl
from tests.support.late_job import LATE_JOBS, late_job, late_verdicts, write_late_job
from tests.support.messy_ranks import assert_same_statistics, messy_rank, write_messy
from warplens.analyse.analysis import Answers
from warplens.analyse.findings import findings_from
from warplens.engines import part_work
from warplens.engines.local_engine import LocalEngine
from warplens.engines.part_work import PartTask
from warplens.engines.queries import dataset_diff, dataset_findings, dataset_statistics
from warplens.errors import CaptureError, UsageError
from warplens.trace import row_groups
from warplens.trace.dataset import Dataset, RowSelection
from warplens.trace.io import save_rank
from warplens.trace.merge import TimeAxis
from warplens.trace.rank_placement import RankPlacement


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_messy(tmp_path_factory.mktemp("job") / "run.warplens")


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"kernel": ["gemm"]},
        {"region": ["load"], "rank": [0, 2]},
        {"launch": [1, 2], "region": ["load", "never"]},
        {"region": ["loss"]},
        {"time": (2_000_000, 4_010_000)},
    ],
)
def test_a_selection_has_the_statistics_of_the_selected_trace(job: Path, conditions: dict[str, object]) -> None:
    found = dataset_statistics(Dataset.open(job), LocalEngine(2), selection=RowSelection.of(**conditions))
    whole = wl.load(job)
    assert_same_statistics(found, (whole.select(**conditions) if conditions else whole).stats())


def test_findings_are_those_of_the_ranks(job: Path) -> None:
    found, exact = dataset_findings(Dataset.open(job), LocalEngine(2)), wl.load(job).findings()
    assert {(one.kernel, one.kind) for one in found.problems} >= {(one.kernel, one.kind) for one in exact.problems}
    kinds = [{(one.kernel, one.kind) for part in vars(some).values() for one in part} for some in (found, exact)]
    assert {kernel for kernel, _ in kinds[0]} == {kernel for kernel, _ in kinds[1]}
    only = dataset_findings(Dataset.open(job), LocalEngine(2), selection=RowSelection.of(kernel=["gemm"]))
    assert {one.kernel for part in vars(only).values() for one in part} == {"gemm"}


@pytest.mark.parametrize("case", LATE_JOBS)
@pytest.mark.parametrize("collectives", [None, "other"])
def test_late_ranks_are_those_of_the_whole_trace(case: str, collectives: str | None, tmp_path: Path) -> None:
    folder = write_late_job(tmp_path / "run", late_job(**LATE_JOBS[case]))
    found = dataset_findings(Dataset.open(folder), LocalEngine(2), collectives=collectives)
    exact = findings_from(Answers(wl.load(folder), collectives=collectives))
    assert late_verdicts(found) == late_verdicts(exact)
    supported = [one for one in found.problems if one.kind == "late rank"]
    if collectives is None:
        assert bool(supported) == (case not in ("no cause", "nobody", "no collective"))
    elif case == "no collective":
        assert supported, "launches of that kernel are collectives"


def test_late_ranks_of_selected_kernels_and_ranks_are_those_of_the_selected_trace(tmp_path: Path) -> None:
    folder = write_late_job(tmp_path / "run", late_job({2: {"softmax": 40_000}}))
    for conditions in ({"kernel": ["attn"]}, {"rank": [0, 2]}, {"rank": [2]}):
        found = dataset_findings(Dataset.open(folder), LocalEngine(2), selection=RowSelection.of(**conditions))
        assert late_verdicts(found) == late_verdicts(findings_from(Answers(wl.load(folder, **conditions))))


def test_findings_read_whole_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_work, "FINDING_ROWS", 10)
    monkeypatch.setattr(row_groups, "_LEAST_ROWS", 10)
    monkeypatch.setattr(row_groups, "MOST_ROWS", 40)
    judged = []
    monkeypatch.setattr(part_work, "judge_piece", lambda trace, *_: judged.append(trace) or [])
    opened = Dataset.open(write_messy(tmp_path / "run", launches=4))
    dataset_findings(opened, LocalEngine(1))
    launches = [set(trace.numpy("launch").tolist()) for trace in judged]
    assert launches == [{launch} for _ in opened.parts for launch in range(4)]
    assert [len(trace.meta.launches) for trace in judged] == [1] * len(judged)


def test_findings_keep_no_piece_in_memory(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[weakref.ref[wl.Trace]] = []
    judge = part_work.judge_piece

    def watched(trace: wl.Trace, *given: Any) -> Any:
        judged.append(weakref.ref(trace))
        return judge(trace, *given)

    monkeypatch.setattr(part_work, "judge_piece", watched)
    gc.disable()
    try:
        dataset_findings(Dataset.open(job), LocalEngine(1))
        assert [one() for one in judged] == [None] * 3
    finally:
        gc.enable()


def test_a_diff_is_that_of_the_traces(job: Path, tmp_path: Path) -> None:
    slower = write_messy(tmp_path / "slower.warplens", slower=1.5)
    found = dataset_diff(Dataset.open(job), Dataset.open(slower), LocalEngine(2))
    assert {one.region for one in found if one.verdict.value == "SLOWER"} == {"outer", "load"}
    assert found["mma"].changes["mean"].change == 0


def test_a_part_that_a_running_rank_replaces_meanwhile_is_an_error(tmp_path: Path) -> None:
    opened = Dataset.open(write_messy(tmp_path / "run"))
    save_rank(messy_rank(1, launches=8), tmp_path / "run", 1)
    with pytest.raises(CaptureError, match=r"rank=1/part-0.parquet: file: was changed while the dataset was read"):
        dataset_statistics(opened, LocalEngine(2))


def test_an_unknown_kernel_is_an_error(job: Path) -> None:
    with pytest.raises(UsageError, match=r"no kernel named 'gem'"):
        dataset_statistics(Dataset.open(job), LocalEngine(), selection=RowSelection.of(kernel="gem"))


def test_results_come_in_order_and_few_parts_are_read_ahead() -> None:
    lock, begun, axis = Lock(), [], TimeAxis(0, RankPlacement())

    def work(task: PartTask) -> pa.Table:
        with lock:
            begun.append(task.stamp[0])
        return pa.table({"a": [task.stamp[0]]})

    tables: Iterator[pa.Table] = LocalEngine(2).tables(work, [PartTask(Path("x"), axis, (at, 0)) for at in range(20)])
    assert next(tables)["a"].to_pylist() == [0]
    assert len(begun) <= 4
    assert [table["a"][0].as_py() for table in tables] == list(range(1, 20))
