"""Parts of a dataset: where row groups end, and how little of them a selection reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.synthetic_dataset import write_dataset
from warplens.analyse.lifetimes import Lifetimes
from warplens.errors import CaptureError, UsageError
from warplens.trace import row_groups as layout
from warplens.trace.dataset import Dataset, RowSelection
from warplens.trace.io import open_part, save_rank
from warplens.trace.row_groups import Wanted, row_groups

KERNELS = ("attention", "gemm")


def rank_of_launches(rank: int, launches: int = 6, spans: int = 40) -> wl.Trace:
    """Two kernels in turn; each launch has two tracks of nested spans, one after the other in time."""
    rows = []
    for launch in range(launches):
        for block in range(2):
            for at in range(0, spans, 2):
                start = launch * 100_000 + at * 100
                place = {"block": block, "launch": launch, "rank": rank, "kernel": KERNELS[launch % 2]}
                rows.append(Span("outer", start, 90 + rank, **place))
                rows.append(Span("inner", start + 5, 10 + at, **place))
    made = make_trace(rows)
    return wl.Trace(made.spans, replace(made.meta, origin_ns=1_000 * rank))


def bytes_read() -> int:
    """Bytes that this process has read from files, as the system counts them."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_LEAST_ROWS", 50)
    monkeypatch.setattr(layout, "MOST_ROWS", 100)


@pytest.fixture
def job(tmp_path: Path, small_groups: None) -> Path:
    for rank in range(4):
        save_rank(rank_of_launches(rank), tmp_path / "run.warplens", rank)
    return tmp_path / "run.warplens"


def test_row_groups_end_with_launches_and_large_launches_are_cut_between_tracks(small_groups: None) -> None:
    tracks, launches = np.arange(0, 310, 10), np.array([0, 20, 60, 300])
    assert row_groups(tracks, launches, 310) == [(0, 60), (60, 160), (160, 260), (260, 310)]
    assert row_groups(np.zeros(1, int), np.zeros(1, int), 500) == [(0, 500)], "a track is never cut"
    assert row_groups(np.zeros(0, int), np.zeros(0, int), 0) == []
    for launch in range(1, 4):
        rows = int(launches[launch])
        first = row_groups(tracks[tracks < rows], launches[:launch], rows)[:-1]
        assert first == row_groups(tracks, launches, 310)[: len(first)], "all but the last stay when more follow"


def test_chunks_hold_whole_tracks_and_together_all_rows(job: Path) -> None:
    part = open_part(job / "rank=1" / "part-0.parquet")
    whole, chunks = part.trace(), list(part.chunks(Wanted(), most_rows=160))
    assert [len(chunk) for chunk in chunks] == [160, 160, 160]
    for name in ("dur_ns", "launch", "track"):
        assert np.concatenate([chunk.numpy(name) for chunk in chunks]).tolist() == whole.numpy(name).tolist()
    parent, first = whole.numpy("parent"), 0
    for chunk in chunks:
        expected = parent[first : first + len(chunk)]
        assert (chunk.numpy("parent") == np.where(expected >= 0, expected - first, -1)).all()
        assert (chunk.numpy("parent") >= 0).any()
        first += len(chunk)


def test_parents_in_row_groups_that_were_not_read_are_unknown(job: Path) -> None:
    part = open_part(job / "rank=0" / "part-0.parquet")
    picked = part.trace([1, 4])
    whole = part.trace()
    rows = np.r_[80:160, 320:400]
    assert picked.numpy("start_ns").tolist() == whole.numpy("start_ns")[rows].tolist()
    parent = whole.numpy("parent")[rows]
    expected = np.where(parent >= 320, parent - 240, np.where(parent >= 0, parent - 80, -1))
    assert picked.numpy("parent").tolist() == expected.tolist()


def test_a_file_whose_row_groups_cut_tracks_is_one_chunk(tmp_path: Path) -> None:
    path = rank_of_launches(0).save(tmp_path / "t.warplens")
    table, document = pq.read_table(path), pq.read_metadata(path).metadata
    document = {key: value for key, value in document.items() if key == b"warplens"}
    pq.write_table(table.replace_schema_metadata(document), path, row_group_size=33, write_statistics=False)
    part = open_part(path)
    assert part.file.metadata.num_row_groups > 10
    assert [len(chunk) for chunk in part.chunks(Wanted(), most_rows=100)] == [part.rows]


@pytest.mark.parametrize(
    "conditions",
    [
        {"rank": 2, "kernel": "gemm"},
        {"rank": [1, 3], "launch": range(2, 4)},
        {"time": (101_000, 203_000)},
        {"region": "inner", "kernel": ["attention"], "time": (None, 250_000)},
        {"block": 1},
    ],
)
def test_a_selection_is_the_one_that_the_whole_trace_gives(job: Path, conditions: dict[str, object]) -> None:
    whole = wl.load(job)
    expected, found = whole.select(**conditions), wl.load(job, **conditions)
    for name in set(expected.spans.column_names) - {"track"}:
        assert found.spans[name].to_pylist() == expected.spans[name].to_pylist(), name
    assert found.meta.launches == expected.meta.launches
    assert found.meta.origin_ns == whole.meta.origin_ns


def test_a_selection_of_one_file_and_of_nothing(job: Path) -> None:
    file = job / "rank=2" / "part-0.parquet"
    assert wl.load(file, kernel="gemm").spans.equals(wl.load(file).select(kernel="gemm").spans)
    assert len(wl.load(job, launch=99)) == 0
    with pytest.raises(UsageError, match=r"no kernel named 'gem' in this trace \(did you mean 'gemm'"):
        wl.load(job, kernel="gem")
    with pytest.raises(UsageError, match="no region named 'iner'"):
        wl.load(job, region="iner")


def test_one_kernel_of_one_rank_is_read_without_the_rest(tmp_path: Path) -> None:
    """What is read is the footers and the row groups of one launch."""
    write_dataset(tmp_path / "run", ranks=30, spans=30 * 140_000, launches=2)
    files = list((tmp_path / "run").rglob("*.parquet"))
    before = bytes_read()
    found = wl.load(tmp_path / "run", rank=17, kernel="gemm")
    read = bytes_read() - before
    assert len(found) == 69_632
    assert set(found.spans["rank"].to_pylist()) == {17}
    group = pq.read_metadata(files[0]).row_group(1)
    mine = sum(group.column(at).total_compressed_size for at in range(group.num_columns))
    footers = sum(pq.read_metadata(file).serialized_size for file in files)
    everything = sum(file.stat().st_size for file in files)
    # Each column chunk is read twice: for its checksum, and to decode it.
    assert read < 2.2 * mine + 3 * footers + 30 * (64 << 10)
    assert read < everything / 10


def test_a_dataset_knows_its_rows_and_launches_from_its_documents(job: Path) -> None:
    opened = Dataset.open(job)
    whole = wl.load(job)
    assert opened.rows == len(whole)
    assert opened.meta == whole.meta
    assert not RowSelection.of(rank=None)


def test_what_a_job_is_still_writing_is_no_part(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", 2, 100)
    expected = wl.load(folder).spans
    part = folder / "rank=0/part-0.parquet"
    for name in ("_temporary/0/part-0.parquet", "rank=1/_tmp.parquet", ".hidden/part-0.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(part.read_bytes()[:100])
    assert wl.load(folder).spans.equals(expected)
    (folder / "copy").mkdir()
    other = make_trace([Span("a", 0, 1)]).save(tmp_path / "a.warplens")
    (folder / "copy/part-0.parquet").write_bytes(other.read_bytes())
    with pytest.raises(CaptureError, match=r"copy/part-0.parquet and rank=0/part-0.parquet both hold launch 0"):
        wl.load(folder)


def test_ranks_with_different_devices_of_one_number_keep_their_own(tmp_path: Path) -> None:
    for rank, (name, sms) in enumerate([("NVIDIA H200", 132), ("NVIDIA A100", 108), ("NVIDIA A100", 108)]):
        made = make_trace([Span("load", 0, 100, rank=rank)])
        device = {"name": name, "index": 0, "sm_count": sms, "capability": "9.0" if sms == 132 else "8.0"}
        save_rank(wl.Trace(made.spans, replace(made.meta, devices={"0": device})), tmp_path / "run", rank)
    trace = wl.load(tmp_path / "run")
    assert [launch.sms for launch in Lifetimes.of(trace).launches] == [132, 108, 108]
    assert [device["name"] for device in trace.meta.distinct_devices] == ["NVIDIA H200", "NVIDIA A100"]
    assert Dataset.open(tmp_path / "run").meta.device(2, 0)["sm_count"] == 108


def test_a_damaged_part_is_named_with_how_to_read_the_others(tmp_path: Path) -> None:
    for rank in range(3):
        save_rank(make_trace([Span("load", 0, 100, rank=rank)]), tmp_path / "run", rank)
    part = tmp_path / "run" / "rank=1" / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    for read in (wl.load, Dataset.open):
        with pytest.raises(CaptureError, match=r"rank=1/part-0.parquet: .*or move it out of the folder"):
            read(tmp_path / "run")
    part.unlink()
    assert [info.rank for info in wl.load(tmp_path / "run").launches] == [0, 2]
