"""Traces: columns, files, folders, selections, merges and statistics."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
from warplens.errors import CaptureError, UsageError
from warplens.trace.merge import merge
from warplens.trace.schema import COLUMNS

CONTRACT = [
    "rank",
    "device",
    "launch",
    "kernel",
    "sm",
    "block",
    "warp",
    "region",
    "kind",
    "depth",
    "parent",
    "start_ns",
    "dur_ns",
    "start_cycle",
    "dur_cycles",
    "value",
]


@pytest.fixture(scope="module")
def trace() -> wl.Trace:
    return decode(make_capture(4000, blocks=16, warps=4, sms=8))


def rank_trace(rank: int, origin: int) -> wl.Trace:
    from dataclasses import replace

    made = decode(replace(make_capture(200, blocks=4, warps=2, sms=4, seed=rank), rank=rank))
    return wl.Trace(made.spans, replace(made.meta, origin_ns=origin))


def test_spans_have_the_contracts_columns_and_types(trace: wl.Trace) -> None:
    assert trace.spans.column_names[: len(CONTRACT)] == CONTRACT
    assert {name: trace.spans.schema.field(name).type for name in COLUMNS} == COLUMNS
    assert min(trace.spans["start_ns"].to_pylist()) == 0
    assert set(trace.spans["kind"].to_pylist()) == {"span"}


def test_parents_contain_their_children(trace: wl.Trace) -> None:
    parent, depth = trace.numpy("parent"), trace.numpy("depth")
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    for start, length in (("start_ns", "dur_ns"), ("start_cycle", "dur_cycles")):
        begin, end = trace.numpy(start), trace.numpy(start) + trace.numpy(length)
        assert (begin[child] >= begin[above]).all()
        assert (end[child] <= end[above]).all()
    assert (depth[child] == depth[above] + 1).all()
    assert (above < child).all()
    assert (depth[parent < 0] == 0).all()


def test_save_and_load_give_the_same_trace(trace: wl.Trace, tmp_path: Path) -> None:
    loaded = wl.load(trace.save(tmp_path / "t.warplens"))
    assert loaded.spans.equals(trace.spans)
    assert loaded.meta == trace.meta
    assert repr(loaded) == repr(trace)


def test_large_columns_are_stored_as_differences(trace: wl.Trace, tmp_path: Path) -> None:
    """Which takes less time to write and to read, and less room."""
    trace.save(tmp_path / "a.warplens")
    group = pq.read_metadata(tmp_path / "a.warplens").row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    stored = {one.path_in_schema for one in columns if "DELTA_BINARY_PACKED" in one.encodings}
    assert stored == {"start_ns", "dur_ns", "start_cycle", "dur_cycles", "track", "block", "parent"}


def test_other_programs_open_the_file_as_it_is(trace: wl.Trace, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = trace.save(tmp_path / "t.warplens")
    frame = pandas.read_parquet(path)
    assert list(frame.columns[: len(CONTRACT)]) == CONTRACT
    assert len(frame) == len(trace)
    assert frame.equals(trace.to_pandas())
    document = json.loads(pq.read_metadata(path).metadata[b"warplens"])
    assert {"schema", "devices", "clock", "losses", "cost"} <= set(document)


def test_a_folder_of_ranks_is_one_trace_on_one_time_axis(tmp_path: Path) -> None:
    whole = merge([rank_trace(0, 5_000), rank_trace(1, 7_500)])
    assert set(whole.spans["rank"].to_pylist()) == {0, 1}
    first = whole.select(rank=1).numpy("start_ns").min()
    assert first == 2_500
    from warplens.trace.io import save

    folder = save(whole, tmp_path / "run.warplens", partition_by=("rank",))
    loaded = wl.load(folder)
    assert loaded.spans.equals(whole.spans)
    assert loaded.meta.losses == whole.meta.losses
    assert len(loaded.meta.launches) == 2
    hive = pq.read_table(folder)
    assert set(hive["rank"].to_pylist()) == {0, 1}
    assert len(hive) == len(whole)


def test_the_files_of_a_runs_ranks_are_one_trace_and_those_of_two_runs_are_none(tmp_path: Path) -> None:
    ranks = [rank_trace(0, 5_000), rank_trace(1, 7_500)]
    for rank, trace in enumerate(ranks):
        trace.save(tmp_path / f"train.rank{rank}.warplens")
    assert wl.load(tmp_path).spans.equals(merge(ranks).spans)
    ranks[1].save(tmp_path / "again.warplens")
    with pytest.raises(CaptureError, match=r"again.warplens and train.rank1.warplens both hold launch 0 of rank 1"):
        wl.load(tmp_path)


def test_a_trace_in_a_folder_by_launch_reads_back(trace: wl.Trace, tmp_path: Path) -> None:
    from warplens.trace.io import save

    folder = save(rank_trace(7, 0), tmp_path / "t", partition_by=("rank",))
    assert wl.load(save(trace, folder, partition_by=("rank", "launch"))).spans.equals(trace.spans), "no part of both"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_bytes(b"hello"), "is not a trace"),
        (lambda p: pq.write_table(pa.table({"a": [1]}), p), "without the 'warplens' key"),
        (lambda p: _with_document(p, b"{"), "JSON document is malformed"),
        (
            lambda p: _with_document(p, b'{"schema": 1, "notes": "' + 999 * b"long" + b'\xff"}'),
            "position 4020: invalid",
        ),
        (lambda p: _with_document(p, b'{"schema": 99}'), "99 is newer than the 2 this warplens knows"),
        (lambda p: _with_document(p, b'{"schema": 1}'), "rank, device, launch.* missing"),
        (lambda p: _with_document(p, b'{"schema": 1, "launches": [3]}'), "malformed"),
        (lambda p: p.mkdir(), "holds no trace"),
        (lambda p: None, "does not exist"),
    ],
)
def test_wrong_files_are_one_clear_error(tmp_path: Path, make, message: str) -> None:
    path = tmp_path / "t.warplens"
    make(path)
    with pytest.raises(CaptureError, match=message) as caught:
        wl.load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path)), "one line says it"


def _with_document(path: Path, document: bytes) -> None:
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({b"warplens": document}), path)


def test_a_damaged_column_is_one_clear_error(trace: wl.Trace, tmp_path: Path) -> None:
    path = trace.save(tmp_path / "t.warplens")
    data = bytearray(path.read_bytes())
    data[200:4000] = b"\xff" * 3800
    path.write_bytes(data)
    with pytest.raises(CaptureError, match=r"t.warplens: column \w+: its checksum does not match"):
        _ = wl.load(path).spans


def test_select_narrows_and_renumbers_parents(trace: wl.Trace) -> None:
    part = trace.select(block=[1, 2], warp=3, region=["mma", "inner"])
    assert set(part.spans["block"].to_pylist()) == {1, 2}
    assert set(part.spans["region"].to_pylist()) == {"mma", "inner"}
    rows = part.spans.to_pylist()
    for row in rows:
        if row["region"] == "inner":
            above = rows[row["parent"]]
            assert above["region"] == "mma"
            assert above["start_ns"] <= row["start_ns"]
        else:
            assert row["parent"] == -1, "its parent is not selected"


def test_select_by_time_keeps_what_touches_the_window(trace: wl.Trace) -> None:
    part = trace.select(time=(500, 900))
    start, end = part.numpy("start_ns"), part.numpy("start_ns") + part.numpy("dur_ns")
    assert len(part)
    assert (start < 900).all()
    assert (end >= 500).all()
    assert len(part) + len(trace.select(time=(900, None))) > len(part)
    edges = make_trace([Span("ends at a", 0, 10), Span("inside", 12, 2), Span("begins at b", 20, 5)])
    assert edges.select(time=(10, 20)).spans["region"].to_pylist() == ["ends at a", "inside"]
    assert edges.select(time=(11, 21)).spans["region"].to_pylist() == ["inside", "begins at b"]


def test_select_by_range_and_launch(trace: wl.Trace) -> None:
    assert set(trace.select(block=range(3, 5)).spans["block"].to_pylist()) == {3, 4}
    assert len(trace.select(launch=0)) == len(trace)
    assert len(trace.select(launch=7)) == 0
    assert trace.select(launch=7).meta.launches == ()


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"region": "lod"}, "no region named 'lod'.*did you mean 'load'"),
        ({"wrap": 1}, "cannot select by 'wrap'.*did you mean 'warp'"),
        ({"sm": "x"}, "expected a whole number"),
        ({"region": 5}, "no region named 5 in this trace .known: "),
        ({"kernel": [1]}, "no kernel named 1 in this trace"),
        ({"time": "x"}, "time='x': expected .begin, end. in ns"),
        ({"time": 5}, "time=5: expected"),
        ({"time": ("a", None)}, "expected .begin, end. in ns"),
        ({"time": (5, 0)}, "ends before it begins"),
    ],
)
def test_wrong_selections_are_refused(trace: wl.Trace, conditions: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trace.select(**conditions)


def test_a_number_is_no_name_of_a_region(trace: wl.Trace) -> None:
    with pytest.raises(UsageError, match="no region named 0 .known: "):
        trace.stats()[0]
    with pytest.raises(UsageError, match="cannot group by 0 .known: "):
        trace.stats(by=0)


def test_statistics_agree_with_plain_arithmetic(trace: wl.Trace) -> None:
    rows = trace.spans.to_pylist()
    durations = [row["dur_cycles"] for row in rows if row["region"] == "mma"]
    inner = sum(rows[i]["dur_cycles"] for i in range(len(rows)) if rows[i]["region"] == "inner")
    row = trace.stats()["mma"]
    assert row.count == len(durations)
    assert row.total == sum(durations)
    assert row.mean == pytest.approx(sum(durations) / len(durations))
    assert row.p50 == pytest.approx(float(np.median(durations)))
    assert (row.min, row.max) == (min(durations), max(durations))
    assert row.exclusive == sum(durations) - inner
    assert row.share == pytest.approx(sum(durations) / trace.meta.launches[0].busy_cycles)
    assert row["p95_cycles"] == row.p95
    assert row.mean_ns == pytest.approx(row.mean / 1.755, rel=0.02)


@pytest.mark.parametrize("by", ["kernel", "sm", "warp", "block", "launch", "rank"])
def test_finer_groups_sum_to_the_whole(trace: wl.Trace, by: str) -> None:
    whole, fine = trace.stats(), trace.stats(by=by)
    for row in whole:
        parts = [other for other in fine if other.region == row.region]
        assert sum(other.count for other in parts) == row.count
        assert sum(other.total for other in parts) == row.total
        assert sum(other.exclusive for other in parts) == row.exclusive
        assert math.isclose(sum(other.share for other in parts), row.share)
    assert len({other.group for other in fine}) == len(set(trace.spans[by].to_pylist()))


def test_spreads_see_a_slow_warp_and_a_slow_sm() -> None:
    from dataclasses import replace

    made = decode(make_capture(4000, blocks=16, warps=4, sms=8))
    spans = made.spans
    slow = (made.numpy("warp") == 2) | (made.numpy("sm") == 5)
    longer = pa.array(made.numpy("dur_cycles") * np.where(slow, 3, 1))
    spans = spans.set_column(spans.schema.get_field_index("dur_cycles"), "dur_cycles", longer)
    row = wl.Trace(spans, replace(made.meta)).stats()["load"]
    assert row.warp_spread > 0.8
    assert row.sm_spread > 0.8
    assert made.stats()["load"].warp_spread < 0.3


def test_wrong_group_and_metric_are_refused(trace: wl.Trace) -> None:
    with pytest.raises(UsageError, match="cannot group by 'wrap'.*did you mean 'warp'"):
        trace.stats(by="wrap")
    with pytest.raises(UsageError, match="did you mean 'mean'"):
        trace.stats().sorted("maen")
    with pytest.raises(UsageError, match="no metric"):
        _ = trace.stats()["mma"]["nope"]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 6))
def test_shares_of_the_outermost_regions_stay_within_the_whole(spans: int, warps: int, sms: int) -> None:
    made = decode(make_capture(spans * 16, blocks=6, warps=warps, sms=sms, seed=spans))
    result = made.stats()
    assert result["outer"].share <= 1
    assert sum(row.exclusive_share for row in result) == pytest.approx(result["outer"].share)
    assert all(row.exclusive <= row.total for row in result)


def test_importing_warplens_is_light() -> None:
    code = "import sys, warplens; print(sorted({'torch', 'triton', 'pyarrow', 'numpy'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_nothing_needs_pandas(tmp_path: Path) -> None:
    """pyarrow's own conversions import pandas, which is slow where it is installed and absent from a core install."""
    code = f"""
import sys
class NoPandas:
    def find_spec(self, name, *_):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
sys.meta_path.insert(0, NoPandas())
import warplens as wl
from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
trace = decode(make_capture(400, blocks=4))
trace.save({str(tmp_path / "t.warplens")!r})
loaded = wl.load({str(tmp_path / "t.warplens")!r})
assert loaded.spans.equals(trace.spans)
loaded.select(region="load").stats()
for suffix in (".pftrace", ".json", ".hatchet", ".csv", ".parquet"):
    trace.export({str(tmp_path / "t")!r} + suffix)
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float64", "bool"])
def test_arrays_cross_to_arrow_and_back(dtype: str) -> None:
    from warplens.trace.arrays import to_arrow, to_numpy

    values = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 1]).astype(dtype)
    arrow = to_arrow(values)
    assert arrow.to_pylist() == values.tolist()
    assert to_numpy(arrow).tolist() == values.tolist()
    assert to_numpy(arrow[3:8]).tolist() == values[3:8].tolist()
    missing = np.arange(10) % 3 == 0
    assert to_arrow(values, missing).null_count == 4
    if dtype == "float64":
        assert np.isnan(to_numpy(to_arrow(values, missing))).tolist() == missing.tolist()
