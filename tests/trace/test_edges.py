"""The table of edges: in files, in selections and merges, and what a file may hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import warplens as wl
from tests.support.barrier_pipeline import run_pipeline
from tests.support.builders import Span, make_trace
from warplens.errors import CaptureError
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.trace.arrays import to_arrow
from warplens.trace.edges import EDGE_COLUMNS
from warplens.trace.merge import merge
from warplens.trace.model import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run_pipeline(blocks=2, tiles=6, work=60).trace


def test_edges_are_saved_with_the_trace(trace: Trace, tmp_path: Path) -> None:
    loaded = wl.load(trace.save(tmp_path / "t.warplens"))
    assert loaded.edges.equals(trace.edges)
    assert loaded.edges.num_rows > 20
    assert {name: loaded.edges.schema.field(name).type for name in EDGE_COLUMNS} == EDGE_COLUMNS


def test_a_file_of_an_older_version_has_no_edges(trace: Trace, tmp_path: Path) -> None:
    path = trace.save(tmp_path / "t.warplens")
    table = pq.read_table(path).drop_columns(["released_by"])
    kept = {key: value for key, value in table.schema.metadata.items() if key == b"warplens"}
    pq.write_table(table.replace_schema_metadata(kept), tmp_path / "old.warplens")
    old = wl.load(tmp_path / "old.warplens")
    assert old.edges.num_rows == 0
    assert set(old.numpy("released_by").tolist()) == {-1}
    assert old.stats() is not None
    assert old.spans.column_names == trace.spans.column_names


def test_an_edge_says_how_long_and_how_early(tmp_path: Path) -> None:
    arrive, wait = BarrierWord(Operation.ARRIVE, 0x400), BarrierWord(Operation.WAIT, 0x400, 1)
    late = make_trace([
        Span("filled", 700, kind="value", value=float(arrive.pack()), released_by=-3),
        Span("full", 100, 620, warp=1),
        Span("full", 100, warp=1, kind="value", value=float(wait.pack()), released_by=0),
    ])  # fmt: skip
    (edge,) = late.edges.to_pylist()
    assert {name: edge[name] for name in ("kind", "barrier", "phase", "wait", "arrival", "wait_record")} == {
        "kind": "arrive", "barrier": 0x400, "phase": 1, "wait": 1, "arrival": 0, "wait_record": 2
    }  # fmt: skip
    assert (edge["waited_ns"], edge["waited_cycles"], edge["slack_ns"]) == (620, 1240, -600)


def test_a_selection_keeps_the_edges_inside_it(trace: Trace) -> None:
    block = trace.select(block=1)
    of_block = [edge for edge in trace.edges.to_pylist() if trace.numpy("block")[edge["wait"]] == 1]
    assert block.edges["waited_ns"].to_pylist() == [edge["waited_ns"] for edge in of_block]
    warp = block.select(warp=[1])
    assert set(warp.edges["kind"].to_pylist()) == {"unknown"}, "what released them is not in the selection"


def test_merged_traces_keep_their_edges(trace: Trace) -> None:
    other = Trace(trace.spans.set_column(0, "rank", to_arrow(np.ones(len(trace), np.int32))), trace.meta)
    both = merge([trace, other])
    assert both.edges.num_rows == 2 * trace.edges.num_rows
    half = trace.edges.num_rows
    assert both.edges["waited_ns"].to_pylist()[half:] == trace.edges["waited_ns"].to_pylist()
    assert both.edges["arrival"].to_numpy()[half:].min() >= len(trace)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (10**6, "and the file has"),
        (-4, "expected at least -3"),
        ("span", "a row that is no barrier record"),
        ("plain", "its row holds no barrier word"),
    ],
)
def test_a_damaged_edge_is_refused(trace: Trace, tmp_path: Path, value: object, said: str) -> None:
    released = trace.numpy("released_by").copy()
    wait = int(np.flatnonzero(released >= 0)[0])
    if value == "plain":
        released[int(np.flatnonzero(released == -1)[0])] = -3
    else:
        released[wait] = np.flatnonzero(released == -1)[0] if value == "span" else value
    place = trace.spans.schema.get_field_index("released_by")
    table = trace.spans.set_column(place, "released_by", to_arrow(released))
    path = Trace(table, trace.meta).save(tmp_path / "t.warplens")
    with pytest.raises(CaptureError, match=said):
        _ = wl.load(path).spans


def test_an_edge_to_another_launch_is_refused(trace: Trace, tmp_path: Path) -> None:
    wait, arrive = BarrierWord(Operation.WAIT, 8, 0), BarrierWord(Operation.ARRIVE, 8)
    wrong = make_trace([
        Span("filled", 700, kind="value", value=float(arrive.pack()), released_by=-3),
        Span("full", 100, 620, launch=1),
        Span("full", 100, launch=1, kind="value", value=float(wait.pack()), released_by=0),
    ])  # fmt: skip
    path = wrong.save(tmp_path / "t.warplens")
    with pytest.raises(CaptureError, match="a row of another launch"):
        _ = wl.load(path).spans
