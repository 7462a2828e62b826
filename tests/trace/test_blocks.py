"""Columns that are read in pieces: the same rows as a column read at once, and the same errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import warplens as wl
from tests.support.rewritten_trace import rewrite, with_value
from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
from warplens.errors import CaptureError
from warplens.trace import columns, io, model, row_groups, validation
from warplens.trace.model import Trace
from warplens.trace.runs import Runs
from warplens.trace.schema import COLUMNS
from warplens.trace.validation import RUN_COLUMNS

DURATIONS = ("dur_cycles", "dur_ns", "parent")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of several row groups, of which two are read at a time, without measures: statistics read its rows."""
    monkeypatch.setattr(row_groups, "MOST_ROWS", 300)
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", 600)
    monkeypatch.setattr(model, "BLOCK_ROWS", 200)
    return io.save(decode(make_capture(2000, blocks=10, warps=2, sms=3)), tmp_path / "t.warplens")


def test_a_column_in_pieces_is_the_whole_column(path: Path) -> None:
    stored, read = pq.read_table(path), wl.load(path)
    assert pq.read_metadata(path).num_row_groups > 4
    for name in COLUMNS:
        assert read.column(name).to_pylist() == stored.column(name).to_pylist(), name


def test_runs_are_those_of_the_whole_column(path: Path) -> None:
    whole, runs = Trace(wl.load(path).spans), wl.load(path)
    for name in RUN_COLUMNS:
        values = whole.codes(name)[0] if name == "kernel" else whole.numpy(name)
        assert (runs.runs(name).whole() == values).all(), name
        assert (whole.runs(name).starts == runs.runs(name).starts).all(), name
        rows = np.array([0, 7, len(whole) - 1, 500])
        assert (runs.at(name, rows) == values[rows]).all(), name
    assert runs.kernels == whole.kernels


@pytest.mark.parametrize("read_before", [(), ("parent",), DURATIONS])
def test_blocks_hold_whole_tracks_and_all_rows(path: Path, read_before: tuple[str, ...]) -> None:
    trace, whole = wl.load(path), Trace(wl.load(path).spans)
    trace.prefetch(*read_before)
    for name in read_before:
        trace.numpy(name)
    blocks = list(trace.blocks(*DURATIONS))
    starts = set(whole.runs("track").starts.tolist())
    assert len(blocks) > 5
    assert all(begin in starts for begin, _, _ in blocks)
    assert [begin for begin, _, _ in blocks[1:]] == [end for _, end, _ in blocks[:-1]]
    assert blocks[-1][1] == len(trace)
    for at, name in enumerate(DURATIONS):
        assert (np.concatenate([values[at] for _, _, values in blocks]) == whole.numpy(name)).all()


def test_a_file_whose_row_groups_cut_tracks_is_read_whole(path: Path) -> None:
    expected = wl.load(path).stats()
    pq.write_table(pq.read_table(rewrite(path)), path, row_group_size=33)
    assert wl.load(path).stats().to_json() == expected.to_json()


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("parent", 1900, "holds 1900, expected an earlier row, or -1 for none"),
        ("parent", 3, "holds 3, a row of another track"),
        ("dur_ns", -7, "holds -7, expected at least 0"),
        ("sm", 9, "holds 9 after 1 within one track"),
        ("warp", 63, "holds 63 after 0 within one track"),
    ],
)
def test_a_wrong_value_in_a_piece_is_named_with_its_row(path: Path, column: str, value: int, problem: str) -> None:
    with_value(path, column, 1406, value)
    pq.write_table(pq.read_table(path), path, row_group_size=100)
    with pytest.raises(CaptureError) as caught:
        wl.load(path).stats()
    assert str(caught.value).startswith(f"{path}: column {column}, row 1406: {problem}"), str(caught.value)


def test_durations_of_all_blocks_together_must_fit_64_bits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = int(pq.read_table(path).column("dur_cycles").to_numpy().sum()) - 1
    monkeypatch.setattr(validation, "_LATEST", most)
    with pytest.raises(CaptureError, match="column dur_cycles.*add up to more than 64 bits hold"):
        wl.load(path).stats()


def test_runs_join_across_pieces() -> None:
    parts = [np.array([1, 1]), np.array([1, 2]), np.array([], int), np.array([2, 2]), np.array([3])]
    runs = Runs.joined(iter(parts))
    assert (runs.starts.tolist(), runs.values.tolist(), runs.rows) == ([0, 3, 6], [1, 2, 3], 7)
    assert runs.at(np.array([0, 2, 3, 5, 6])).tolist() == [1, 1, 2, 2, 3]
    empty = Runs.of(np.zeros(0, np.int16))
    assert (len(empty.starts), empty.values.dtype, empty.rows) == (0, np.int16, 0)
