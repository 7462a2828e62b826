"""Validation: a value that a trace cannot hold is one error with file, column and row, before any analysis uses it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.paths import GOLDEN
from tests.support.rewritten_trace import rewrite, with_value
from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
from warplens.errors import CaptureError
from warplens.trace.io import METADATA_KEY

SPANS = [Span("a", 0, 10), Span("b", 2, 3), Span("a", 20, 5), Span("a", 0, 10, block=1), Span("b", 2, 3, block=1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_trace(SPANS).save(tmp_path / "t.warplens")


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("parent", 1, 587_202_304, "column parent, row 1: holds 587202304, expected an earlier row"),
        ("parent", 1, 1, "column parent, row 1: holds 1, expected an earlier row"),
        ("parent", 1, -2, "column parent, row 1: holds -2, expected at least -1"),
        ("parent", 4, 0, "column parent, row 4: holds 0, a row of another track"),
        ("depth", 1, 0, "column depth, row 1: holds 0, and its parent 0"),
        ("depth", 0, -1, "column depth, row 0: holds -1"),
        ("start_ns", 0, -1, "column start_ns, row 0: holds -1, expected at least 0"),
        ("start_ns", 1, 500, "column start_ns, row 2: holds 20 after 500"),
        ("dur_ns", 2, -5, "column dur_ns, row 2: holds -5"),
        ("dur_ns", 2, 2**60, "column dur_ns, row 2: holds"),
        ("dur_cycles", 2, None, "column dur_cycles, row 2: holds no value"),
        ("start_cycle", 2, 2**62 + 1, "column start_cycle, row 2: holds"),
        ("kernel", 3, None, "column kernel, row 3: holds no name"),
        ("kind", 3, "spam", "column kind: holds 'spam'; known are span, instant, value"),
        ("launch", 0, 7, "column launch, row 1: holds 0 after 7 within one track"),
        ("rank", 3, 4, "column rank, row 4: holds 0 after 4 within one track"),
        ("sm", 1, -1, "column sm, row 1: holds -1"),
        ("warp", 0, 64, "column warp, row 0: holds 64"),
        ("lane", 0, 32, "column lane, row 0: holds 32"),
        ("track", 0, 3, "column track, row 1: holds 0 after 3"),
        ("open", 0, None, "column open, row 0: holds no value"),
    ],
)
def test_a_wrong_value_is_named_with_its_row(path: Path, column: str, row: int, value: Any, message: str) -> None:
    with_value(path, column, row, value)
    with pytest.raises(CaptureError) as caught:
        _ = wl.load(path).spans
    assert str(caught.value).startswith(f"{path}: {message}"), str(caught.value)
    assert str(caught.value).endswith("copy it again or profile again")


@pytest.mark.parametrize(("column", "value", "most"), [("block", 2, "2 of them"), ("warp", 4, "4 of them")])
def test_a_place_outside_the_launch_is_refused(path: Path, column: str, value: int, most: str) -> None:
    table = pq.read_table(path)
    values = np.array(table.column(column).to_pylist())
    values[3:] = value
    at = table.schema.get_field_index(column)
    rewrite(path, table.set_column(at, column, pa.array(values, table.schema.field(column).type)))
    with pytest.raises(CaptureError, match=rf"column {column}, row 3: holds {value}, and its launch has {most}"):
        _ = wl.load(path).spans


def test_rows_of_an_unlisted_launch_are_refused(path: Path) -> None:
    rewrite(path, launches=[])
    with pytest.raises(CaptureError, match="column launch, row 0: holds 0, and the file lists no launch 0 of rank 0"):
        _ = wl.load(path).spans


def test_a_column_that_was_refused_stays_refused_and_decides_no_other_check(path: Path) -> None:
    rewrite(path, launches=[])
    trace = wl.load(path)
    trace.numpy("rank")
    for _ in range(2):
        with pytest.raises(CaptureError, match="column launch, row 0: holds 0, and the file lists no launch 0"):
            trace.numpy("launch")
        assert len(trace.numpy("block")) == len(trace.numpy("warp"))


def test_columns_are_checked_together_when_both_are_read(path: Path) -> None:
    with_value(path, "depth", 1, 0)
    trace = wl.load(path)
    assert trace.numpy("parent")[1] == 0
    assert len(trace.stats()), "the depth is not read"
    with pytest.raises(CaptureError, match="column depth, row 1"):
        trace.numpy("depth")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"launches": {}}, "launches is an object, expected a list"),
        ({"launches": [{"launch": 0}]}, r"launches\[0\].kernel is missing"),
        ({"origin_ns": 10**40}, "origin_ns is a number of many digits"),
        ({"origin_ns": 1.5}, "origin_ns is 1.5, expected a whole number"),
        ({"clock": {"mhz_mean": float("nan")}}, "clock.mhz_mean is NaN, expected a number of at most 1e100"),
        (
            {"clock": {"residual_max_ns": 1e308}},
            r"clock.residual_max_ns is 1e\+308, expected a number of at most 1e100",
        ),
        ({"sensitivity": {"regions": [{"slope": 10**400}]}}, "slope is a number of many digits"),
        (
            {"verification": {"k": {"kernel": "k", "own": float("inf")}}},
            r"verification\['k'\]: this is no verification",
        ),
        ({"pc_samples": {"taken": float("inf")}}, "pc_samples: these are no samples"),
        ({"rank_clocks": {"ranks": {"0": {"host": 0.5}}, "hosts": [{}], "calls": []}}, "rank_clocks: malformed"),
        (
            {"rank_clocks": {"ranks": {"0": {"worst_ns": float("nan")}}, "hosts": [{}], "calls": []}},
            "rank_clocks: malf",
        ),
        ({"losses": {"records_lost": -1}}, "losses.records_lost is negative"),
        ({"losses": {"tracks": True}}, "losses.tracks is true"),
        ({"notes": {"k": "text"}}, r"notes\['k'\] is \"text\", expected a list"),
        ({"devices": {"0": {"sm_count": "many"}}}, r"devices\['0'\].sm_count is \"many\""),
        ({"cost": {"x": "y"}}, r"cost\['x'\]"),
        ({"schema": []}, "schema is a list"),
    ],
)
def test_a_wrong_document_is_named_with_its_key(path: Path, document: dict[str, Any], message: str) -> None:
    rewrite(path, **document)
    with pytest.raises(CaptureError, match=message) as caught:
        wl.load(path)
    assert "JSON document is malformed" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"grid": [0, 1, 1]}, {"grid": [1, 1]}, {"end_ns": -5}, {"rank": -1}, {"tracks": -1}, {"clock": "symulated"}],
)
def test_a_wrong_launch_is_refused(path: Path, change: dict[str, Any]) -> None:
    known = json.loads(pq.read_metadata(path).metadata[METADATA_KEY])["launches"][0]
    rewrite(path, launches=[known | change])
    with pytest.raises(CaptureError, match=r"launches\[0\]"):
        wl.load(path)


def test_deep_json_is_one_error_and_lone_surrogates_are_escaped(path: Path) -> None:
    rows = pq.read_table(path)
    deep = b'{"schema": 1, "cost": ' + b"[" * 200_000
    other = path.with_name("deep.warplens")
    pq.write_table(rows.replace_schema_metadata({METADATA_KEY: deep}), other)
    with pytest.raises(CaptureError, match="malformed"):
        wl.load(other)
    rewrite(path, producer="x\ud800y")
    assert wl.load(path).meta.producer == "x\\ud800y"


def test_a_wrong_type_of_column_is_refused(path: Path) -> None:
    table = pq.read_table(path)
    at = table.schema.get_field_index("start_ns")
    rewrite(path, table.set_column(at, "start_ns", pa.array([0.5] * 5)))
    with pytest.raises(CaptureError, match="column start_ns: is double, expected int64"):
        wl.load(path).numpy("start_ns")


def test_every_golden_trace_is_valid(tmp_path: Path) -> None:
    files = sorted(GOLDEN.rglob("*.warplens"))
    assert files
    for file in files:
        assert len(wl.load(file).spans)
    for file in sorted(GOLDEN.rglob("*.wlcap")):
        decoded = wl.load(file)
        assert wl.load(decoded.save(tmp_path / "t.warplens", force=True)).spans.equals(decoded.spans)


def test_a_file_that_was_replaced_keeps_its_own_rows(tmp_path: Path) -> None:
    path = make_trace(SPANS).save(tmp_path / "t.warplens")
    loaded = wl.load(path)
    make_trace([Span("other", 0, 99)]).save(path, force=True)
    assert loaded.regions == ["a", "b"]
    assert len(loaded.spans) == len(SPANS)


def test_a_file_that_was_rewritten_in_place_is_noticed(tmp_path: Path) -> None:
    path = make_trace(SPANS).save(tmp_path / "t.warplens")
    loaded = wl.load(path)
    other = make_trace([Span("other", 0, 99)]).save(tmp_path / "o.warplens").read_bytes()
    path.write_bytes(other)
    os.utime(path, ns=(1, 1))
    with pytest.raises(CaptureError, match="was changed after it was loaded; load it again"):
        _ = loaded.spans


def test_a_folder_with_more_files_than_may_be_open_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for rank in range(40):
        make_trace([Span("a", 0, 10, rank=rank)]).save(tmp_path / f"r{rank}.warplens")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        assert len(wl.load(tmp_path)) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_trace_can_be_pickled(tmp_path: Path) -> None:
    decoded = decode(make_capture(400, blocks=4))
    loaded = wl.load(decoded.save(tmp_path / "t.warplens"))
    for trace in (decoded, loaded, loaded.select(block=1)):
        again = pickle.loads(pickle.dumps(trace))
        assert again.spans.equals(trace.spans)
        assert again.meta == trace.meta


def test_a_parent_is_a_span(tmp_path: Path) -> None:
    made = make_trace([Span("a", 0, 10), Span("tick", 5, kind="instant"), Span("b", 6, 2)]).save(
        tmp_path / "t.warplens"
    )
    with_value(made, "parent", 2, 1)
    with pytest.raises(CaptureError, match="column parent, row 2: holds 1, a row of kind instant"):
        _ = wl.load(made).spans
