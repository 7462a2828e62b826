"""Code between regions leaves no record: its spans come from the records around it and from what the weaver knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from warplens.decode import decode
from warplens.errors import CaptureError
from warplens.record.capture import BETWEEN, Capture, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter

START, EXIT = 1000, 2000
REGIONS = {1: "load", 2: "store", 3: "ready", 4: "work k.py:1-3", 5: "work k.py:4-9", 6: "work k.py:12"}
KNOWN = [[0, 1, 4], [1, 2, 5], [2, 1, 5], [2, 0, 6]]
"""From the start to a load, between a load and a store in both directions, and from a store to the exit."""
B, E, I = Kind.BEGIN, Kind.END, Kind.INSTANT  # noqa: E741
PROGRAM = [(B, 1, 1100), (E, 1, 1200), (B, 2, 1500), (E, 2, 1600)]
Record = tuple[Kind, int, int]


def launch(*programs: Sequence[Record], capacity: int = 16, full: str = "stop", known: Any = KNOWN) -> Launch:
    tracks = []
    for warp, program in enumerate(programs):
        writer = TrackWriter(capacity, warp=warp, full=full)
        writer.start(START, 0)
        for kind, region, clock in program:
            writer.record(kind, region, clock)
        writer.exit(EXIT, EXIT - START)
        tracks.append(writer.to_bytes())
    block = (32 * len(programs), 1, 1)
    return Launch("k", (1, 1, 1), block, REGIONS, capacity, np.concatenate(tracks), full=full, extra={BETWEEN: known})


def rows_of(*launches: Launch, native: bool = True) -> list[tuple[Any, ...]]:
    trace = decode(Capture(list(launches)), native=native)
    names = ("warp", "region", "depth", "parent", "start_cycle", "dur_cycles")
    return [tuple(row[name] for name in names) for row in trace.spans.to_pylist()]


@pytest.mark.parametrize("native", [False, True])
def test_code_between_regions_has_spans_that_leave_no_gap(native: bool) -> None:
    found = rows_of(launch(PROGRAM, [], PROGRAM), native=native)
    expected = [
        ("work k.py:1-3", 0, -1, 1000, 100), ("load", 0, -1, 1100, 100), ("work k.py:4-9", 0, -1, 1200, 300),
        ("store", 0, -1, 1500, 100), ("work k.py:12", 0, -1, 1600, 400),
    ]  # fmt: skip
    assert found == [(warp, *row) for warp in (0, 2) for row in expected]


def test_the_time_counts_as_covered() -> None:
    def covered(known: Any) -> float:
        return decode(Capture([launch(PROGRAM, known=known)])).meta.launches[0].covered["median"]

    assert covered([]) == pytest.approx(0.2)
    assert covered(KNOWN) == 1.0
    assert covered(KNOWN[:2]) == pytest.approx(0.6), "what the weaver did not find stays outside all regions"


def test_instants_are_inside_the_code_in_which_they_are() -> None:
    program = [(I, 3, 1050), *PROGRAM[:2], (I, 3, 1300), (I, 3, 1400), *PROGRAM[2:], (I, 3, 1700)]
    found = rows_of(launch(program, program))
    inside = [(row[0], row[2], found[row[3]][:2]) for row in found if row[1] == "ready"]
    places = ("work k.py:1-3", "work k.py:4-9", "work k.py:4-9", "work k.py:12")
    assert inside == [(warp, 1, (warp, place)) for warp in (0, 1) for place in places]


def test_regions_inside_others_keep_their_parents() -> None:
    program = [(B, 1, 1100), (B, 3, 1120), (E, 3, 1130), (E, 1, 1200), *PROGRAM[2:]]
    found = rows_of(launch(PROGRAM, program))[5:]
    assert [row[1:4] for row in found] == [
        ("work k.py:1-3", 0, -1), ("load", 0, -1), ("ready", 1, 6), ("work k.py:4-9", 0, -1), ("store", 0, -1),
        ("work k.py:12", 0, -1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "options", "left"),
    [
        ([*PROGRAM, (B, 1, 1700)], {}, "work k.py:12"),
        ([PROGRAM[0], *PROGRAM[2:]], {}, "work k.py:4-9"),
        (PROGRAM * 2, {"capacity": 4}, "work k.py:12"),
        ([*PROGRAM, *((kind, region, clock + 300) for kind, region, clock in PROGRAM)],
         {"capacity": 4, "full": "ring"}, "work k.py:1-3"),
    ],
    ids=["a region that never ends", "a region whose end is missing", "the last records lost", "the first ones lost"],
)  # fmt: skip
def test_nothing_is_made_up_where_records_are_missing(program: Any, options: Any, left: str) -> None:
    assert left not in {row[1] for row in rows_of(launch(program, **options))}


def test_launches_with_different_code_and_without_any_are_decoded_together() -> None:
    other = launch(PROGRAM, known=[[1, 2, 6]])
    plain = launch(PROGRAM, known=[])
    found = [row[1] for row in rows_of(launch(PROGRAM), plain, other)]
    assert found[5:] == ["load", "store", "load", "work k.py:12", "store"]


@pytest.mark.parametrize("wrong", [[[1, 2]], [[1, 2, 9]], [[9, 2, 4]], [[1, 2, 0]], [[1, 2, "4"]], [3]])
def test_a_capture_with_impossible_code_between_regions_is_refused(wrong: Any) -> None:
    with pytest.raises(CaptureError, match="between"):
        launch(PROGRAM, known=wrong)


def test_a_trace_names_the_regions_without_marks_once_per_kernel() -> None:
    first, second = decode(Capture([launch(PROGRAM), launch(PROGRAM)])).meta.launches
    assert first.extra[BETWEEN] == ["work k.py:1-3", "work k.py:12", "work k.py:4-9"]
    assert BETWEEN not in second.extra
