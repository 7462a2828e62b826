"""Durations without what the marks added: the truth comes back exactly, and nothing is assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.analyse import time_shift
from warplens.calibrate.known_lengths import LONG, SHORT, WARM_UP, Calibration, solve
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.record.capture import Capture, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, RECORD, TRACK_MAGIC, Kind, TrackState, track_stride, word0
from warplens.trace.model import Trace

Record = tuple[Kind, int, int]
"""Kind, region and clock."""


def launch(records: list[Record], names: dict[int, str], cost: dict[str, float]) -> Launch:
    words: list[tuple[int, int]] = []
    for kind, region, clock in records:
        words += [(0, 0)] * (kind == Kind.VALUE) + [(word0(kind, region), clock)]
    raw = np.zeros(track_stride(len(words)), np.uint8)
    header = raw[:HEADER_BYTES].view(HEADER)[0]
    header["magic"], header["written"], header["state"] = TRACK_MAGIC, len(words), TrackState.EXITED
    header["start_ns"], header["exit_clock"], header["exit_ns"] = 1000, records[-1][2] + 10, records[-1][2] + 1010
    raw[HEADER_BYTES : HEADER_BYTES + 8 * len(words)].view(RECORD)[:] = words
    return Launch("k", (1, 1, 1), (32, 1, 1), names, len(words), raw, cost=cost)


def trace(records: list[Record], names: dict[int, str], cost: dict[str, float]) -> Trace:
    return decode(Capture([launch(records, names, cost)]))


def span(region: int, begin: int, length: int) -> list[Record]:
    return [(Kind.BEGIN, region, begin), (Kind.END, region, begin + length)]


class Program(NamedTuple):
    """Records of regions at random, and the work in front of each."""

    kinds: list[Kind]
    work: list[int]

    def clocks(self, behind: int, noted: int, record: int) -> list[int]:
        """A record waits for the one before, a value for two stores; work between them hides that, but for `record`."""
        waits = [noted if kind == Kind.VALUE else behind for kind in self.kinds]
        gaps = [max(work + record * (work > 0), wait) for work, wait in zip(self.work[1:], waits, strict=False)]
        return [0, *accumulate(gaps)]

    def rows(self) -> Iterator[tuple[int, int]]:
        """The records of each row of the trace: its begin and its end."""
        stack: list[int] = []
        ends: dict[int, int] = {}
        for at, kind in enumerate(self.kinds):
            if kind == Kind.BEGIN:
                stack.append(at)
            else:
                ends[stack.pop() if kind == Kind.END else at] = at
        yield from sorted(ends.items())

    def trace(self, clocks: list[int], cost: dict[str, float]) -> Trace:
        return trace([(kind, 1, clock) for kind, clock in zip(self.kinds, clocks, strict=True)], {1: "r"}, cost)


@st.composite
def programs(draw: st.DrawFn, work: st.SearchStrategy[int]) -> Program:
    kinds: list[Kind] = []
    depth = 0
    for kind in draw(st.lists(st.sampled_from((Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.VALUE)), max_size=14)):
        kinds += [kind] if kind != Kind.END or depth else []
        depth += (kind == Kind.BEGIN) - (kind == Kind.END and depth > 0)
    kinds = [Kind.BEGIN, *kinds, *[Kind.END] * (depth + 1)]
    return Program(kinds, [0, *(draw(work) for _ in kinds[1:])])


def costs(region: int, record: int, behind: int, noted: int) -> dict[str, float]:
    return {"region_cycles": region, "record_cycles": record, "behind_cycles": behind, "behind_value_cycles": noted}


WORK, SHORT_WORK = st.one_of(st.just(0), st.integers(100, 400)), st.integers(0, 60)


@given(programs(WORK), st.integers(0, 30), st.integers(0, 60), st.integers(0, 9))
def test_regions_come_back_at_their_true_length(program: Program, behind: int, more: int, record: int) -> None:
    """However records lie behind each other, at any depth: what they waited for is gone, and no work with it."""
    clocks = program.clocks(behind, behind + more, record)
    result = program.trace(clocks, costs(record, record, behind, behind + more))
    truth = [sum(program.work[begin + 1 : end + 1]) for begin, end in program.rows()]
    assert result.time_shift().tolist() == truth
    assert result.numpy("dur_cycles").tolist() == [clocks[end] - clocks[begin] for begin, end in program.rows()]


@given(programs(SHORT_WORK), st.integers(0, 30))
def test_work_too_short_to_show_is_all_that_is_lost(program: Program, behind: int) -> None:
    """Marks hide work that takes no longer than they do. Nothing else is taken, and nothing is ever added."""
    found = program.trace(program.clocks(behind, behind, 0), costs(0, 0, behind, behind)).time_shift().tolist()
    for (begin, end), cycles in zip(program.rows(), found, strict=True):
        inside = program.work[begin + 1 : end + 1]
        assert sum(work for work in inside if work > behind * time_shift.SLACK) <= cycles <= sum(inside)
        assert cycles == sum(work for work in inside if work > behind * time_shift.SLACK)


@given(
    programs(SHORT_WORK),
    st.integers(-4, 20),
    st.integers(0, 9),
    st.integers(0, 30),
    st.sampled_from((0, 3, 22)),
)
def test_a_span_is_never_shorter_than_those_inside_it(
    program: Program, region: int, record: int, behind: int, known: int
) -> None:
    """Whatever the calibration says, and however wrong it is."""
    result = program.trace(program.clocks(behind, behind, record), costs(region, record, known, known))
    cycles, parent = result.time_shift(), result.numpy("parent")
    spans = np.flatnonzero(result.of_kind("span"))
    assert (cycles >= 0).all()
    for row in spans:
        assert cycles[row] >= cycles[spans[parent[spans] == row]].sum()


@given(programs(SHORT_WORK), st.integers(0, 3))
def test_marks_that_make_none_wait_lose_a_constant_alone(program: Program, region: int) -> None:
    """Woven marks: records right behind each other share one clock read, and none waits for a store."""
    clocks = program.clocks(0, 0, 0)
    found = program.trace(clocks, costs(region, 0, 0, 0)).time_shift().tolist()
    raw = [(program.kinds[begin], clocks[end] - clocks[begin]) for begin, end in program.rows()]
    assert found == [max(cycles - region * (kind == Kind.BEGIN), 0) for kind, cycles in raw]


def test_a_region_with_nothing_recorded_inside_may_be_shorter_than_the_wait_between_others() -> None:
    """The end of such a region stores its begin: five cycles of work show, where two begins wait 28 for each other."""
    empty, short, outer = span(1, 100, 2), span(1, 200, 7), [(Kind.BEGIN, 1, 300), *span(1, 307, 7), (Kind.END, 1, 340)]
    known = costs(0, 0, 28, 28) | {"empty_cycles": 2.0}
    found = trace([*empty, *short, *outer], {1: "r"}, known)
    assert found.numpy("dur_cycles").tolist() == [2, 7, 40, 7]
    # Of the outer one, the 7 between the begins are taken for a wait, and so are the 26 between the ends.
    assert found.time_shift().tolist() == [0, 7, 7, 7]
    assert trace(short, {1: "r"}, costs(0, 0, 28, 28)).time_shift().tolist() == [0]


def test_nested_regions_of_an_h200_lose_what_their_ends_took() -> None:
    """Direct marks around 64 fmas of 4 cycles in each of four levels, as measured. The 264 are work that waits for a
    store of the marks before it: nothing in the trace tells that from work."""
    gaps = [10, 264, 257, 257, 257, 22, 22, 21, 22]
    clocks = [0, *accumulate(gaps)]
    program = Program([Kind.BEGIN] * 5 + [Kind.END] * 5, [])
    result = program.trace(clocks, costs(-1, 1, 22, 32))
    assert result.numpy("dur_cycles").tolist() == [1132, 1100, 815, 536, 257]
    assert result.time_shift().tolist() == [1033, 1033, 770, 514, 258]


def test_two_regions_beside_each_other_are_as_long_as_the_one_around_them() -> None:
    """Each ends before its last result is there, and the wait for it passes while the next begins."""
    clocks = [0, *accumulate([22, 255, 22, 255, 22])]
    program = Program([Kind.BEGIN, Kind.BEGIN, Kind.END, Kind.BEGIN, Kind.END, Kind.END], [])
    assert program.trace(clocks, costs(-1, 1, 22, 32)).time_shift().tolist() == [512, 256, 256]


def test_spans_in_flight_do_not_add_up() -> None:
    """Copies that overlap each other, within a region that is shorter than both together."""
    records = [
        (Kind.BEGIN, 1, 0), (Kind.ASYNC_BEGIN, 2, 100), (Kind.ASYNC_BEGIN, 3, 200), (Kind.ASYNC_END, 2, 900),
        (Kind.ASYNC_END, 3, 1000), (Kind.END, 1, 1100),
    ]  # fmt: skip
    found = trace(records, {1: "r", 2: "a", 3: "b"}, costs(-2, 0, 20, 20)).time_shift()
    assert found.tolist() == [1102, 802, 802]


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_tracks_and_launches_keep_their_own_records_and_constants(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_shift, "ROWS", rows)
    records = [(Kind.BEGIN, 1, 0), *span(1, 20, 20), (Kind.END, 1, 60)]
    launches = [launch(records, {1: "r"}, costs(0, 0, behind, behind)) for behind in (20, 0, 20)]
    assert decode(Capture(launches)).time_shift().tolist() == [0, 0, 60, 20, 0, 0]


def test_a_region_shorter_than_its_marks_is_zero_and_instants_count_once() -> None:
    records = [(Kind.BEGIN, 1, 0), (Kind.INSTANT, 2, 40), (Kind.END, 1, 100), (Kind.BEGIN, 1, 200), (Kind.END, 1, 203)]
    result = trace(records, {1: "r", 2: "i"}, {"region_cycles": 9, "record_cycles": 6})
    assert result.time_shift().tolist() == [85, 0, 0]


def test_a_region_that_ends_before_its_result_gets_those_cycles_back_but_an_empty_one_stays_empty() -> None:
    records = [line for i, length in enumerate((254, 0, 1, 2)) for line in span(1, 300 * i, length)]
    for empty, shortest in ((1, 0), (0, 3)):
        cost = {"region_cycles": -2, "record_cycles": 0, "empty_cycles": empty}
        assert trace(records, {1: "r"}, cost).time_shift().tolist() == [256, 0, shortest, 4]


def test_without_a_calibration_nothing_is_assumed() -> None:
    bare = trace([(Kind.BEGIN, 1, 0), (Kind.END, 1, 10)], {1: "r"}, {})
    with pytest.raises(WarplensError, match="k has no calibration.*calibrate"):
        bare.time_shift()
    with pytest.raises(WarplensError, match="no calibration"):
        Trace(bare.spans, replace(bare.meta, launches=())).time_shift()


def solved(region: int, record: int, **odd: int) -> Calibration:
    """From a device with these constants whose fma takes 4 cycles; `odd` cycles more in the regions of those names."""
    names = {1: "short", 2: "long", 3: "outer", 4: "inner", 5: "empty", 6: "packed", 7: "noted", 8: "bare"}
    fma, unfinished = 4, 2
    lengths = {
        "short": fma * SHORT - unfinished + region,
        "long": fma * LONG - unfinished + region,
        "outer": 3 * fma * SHORT - unfinished + region + 2 * record,
        "bare": fma * SHORT - unfinished,
        "empty": 16,
        "packed": 21,
        "noted": 33,
    }
    lengths = {name: length + odd.get(name, 0) for name, length in lengths.items()}
    records: list[Record] = []
    now = 0
    for _ in range(WARM_UP + 30):
        for number in (1, 2):
            records += span(number, now, lengths[names[number]])
            now += lengths[names[number]] + 20
        records += [
            (Kind.BEGIN, 3, now),
            *span(4, now + 130, fma * SHORT + region),
            (Kind.END, 3, now + lengths["outer"]),
        ]
        now += lengths["outer"] + 60
    for _ in range(WARM_UP + 30):
        records += span(5, now, lengths["empty"])
        now += 45
    for _ in range(WARM_UP + 30):
        clocks = accumulate((8, 8, 21, lengths["packed"], 8, 8, 8), initial=now)
        records += [(Kind.BEGIN if k == "B" else Kind.END, 6, at) for k, at in zip("BBBEEBEE", clocks, strict=True)]
        now += 200
    for _ in range(WARM_UP + 30):
        records += [(Kind.BEGIN, 7, now), (Kind.VALUE, 7, now + 22), (Kind.END, 7, now + 22 + lengths["noted"])]
        now += 200
    for _ in range(WARM_UP + 30):
        records.append((Kind.VALUE, 8, now))
        now += 300
    made = trace(records, names, {})
    values = np.where(made.codes("region")[0] == made.codes("region")[1].index("bare"), lengths["bare"], np.nan)
    at = made.spans.column_names.index("value")
    spans = made.spans.set_column(at, made.spans.schema.field(at), pa.array(values, from_pandas=True))
    return solve(Trace(spans, made.meta), "made up")


def test_the_calibration_finds_the_constants_of_a_device() -> None:
    found = solved(region=11, record=7, packed=2)
    assert (found.region, found.record, found.empty, found.alone) == (11, 7, 16, 22.5)
    assert (found.behind, found.noted) == (23, 33), "the longest between any two of the records right behind each other"
    assert found.cost == {
        "region_cycles": 11, "record_cycles": 7, "empty_cycles": 16, "record_alone_cycles": 22.5,
        "behind_cycles": 23, "behind_value_cycles": 33,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["short", "long", "outer", "empty", "packed", "noted", "bare"])
@pytest.mark.parametrize("cycle", [-1, 1])
def test_an_odd_cycle_in_one_median_moves_no_constant_by_more_than_itself(name: str, cycle: int) -> None:
    """Chains of 64 and 128 fmas tell how long one takes: shared among them, an odd cycle must not count 64 times."""
    right, found = solved(region=2, record=3), solved(region=2, record=3, **{name: cycle})
    moved = [abs(found.cost[key] - right.cost[key]) for key in right.cost]
    assert max(moved) <= 1
    assert name != "long" or max(moved) == 0


def test_a_record_never_takes_less_than_nothing() -> None:
    """A record that hides in the chain it interrupts reads 0, and an odd cycle below that is noise, not a gain."""
    assert solved(region=0, record=0, outer=-1).record == 0
    assert solved(region=0, record=0, short=1).record == 0


def test_marks_that_are_only_clock_reads_leave_the_duration_as_it_is() -> None:
    """The latency of the last result is no part of a region, so it is not added either."""
    assert solved(region=0, record=0).region == 0
    assert solved(region=0, record=0, bare=1).region == 0
