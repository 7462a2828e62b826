"""Durations without what the marks added: the truth comes back exactly, and nothing is assumed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.capture import Capture, Launch
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.launch.calibration import LONG, SHORT, WARM_UP, Calibration, solve
from warplens.record.layout import HEADER, HEADER_BYTES, RECORD, TRACK_MAGIC, Kind, TrackState, track_stride, word0
from warplens.trace.model import Trace


def trace(records: list[tuple[Kind, int, int]], names: dict[int, str], cost: dict[str, float]) -> Trace:
    raw = np.zeros(track_stride(len(records)), np.uint8)
    header = raw[:HEADER_BYTES].view(HEADER)[0]
    header["magic"], header["written"], header["state"] = TRACK_MAGIC, len(records), TrackState.EXITED
    header["start_ns"], header["exit_clock"], header["exit_ns"] = 1000, records[-1][2] + 10, records[-1][2] + 1010
    slots = raw[HEADER_BYTES : HEADER_BYTES + 8 * len(records)].view(RECORD)
    for slot, (kind, region, clock) in zip(slots, records, strict=True):
        slot["word0"], slot["clock"] = word0(kind, region), clock
    launch = Launch("k", (1, 1, 1), (32, 1, 1), names, len(records), raw, cost=cost)
    return decode(Capture([launch]))


def span(region: int, begin: int, length: int) -> list[tuple[Kind, int, int]]:
    return [(Kind.BEGIN, region, begin), (Kind.END, region, begin + length)]


@given(work=st.lists(st.integers(0, 400), min_size=1, max_size=6), region=st.integers(0, 30), record=st.integers(0, 20))
def test_nested_regions_come_back_at_their_true_length(work: list[int], region: int, record: int) -> None:
    """Each region has its own work before the next begins inside it; what it measures is all work in it, one region's
    constant, and one record's for each record inside."""
    depth = len(work)
    records: list[tuple[Kind, int, int]] = []
    total = [sum(work[level:]) + region + 2 * record * (depth - 1 - level) for level in range(depth)]
    starts = [sum(work[:level]) + level for level in range(depth)]
    records += [(Kind.BEGIN, 1, start) for start in starts]
    records += [(Kind.END, 1, starts[level] + total[level]) for level in reversed(range(depth))]
    if any(a[2] > b[2] for a, b in pairwise(records)):
        return
    result = trace(records, {1: "r"}, {"region_cycles": region, "record_cycles": record})
    assert result.time_shift().tolist() == [sum(work[level:]) for level in range(depth)]
    assert result.numpy("dur_cycles").tolist() == total, "raw values stay"


def test_a_region_shorter_than_its_marks_is_zero_and_instants_count_once() -> None:
    records = [(Kind.BEGIN, 1, 0), (Kind.INSTANT, 2, 40), (Kind.END, 1, 100), (Kind.BEGIN, 1, 200), (Kind.END, 1, 203)]
    result = trace(records, {1: "r", 2: "i"}, {"region_cycles": 9, "record_cycles": 6})
    assert result.time_shift().tolist() == [85, 0, 0]


def test_a_region_that_ends_before_its_result_gets_those_cycles_back_but_an_empty_one_stays_empty() -> None:
    cost = {"region_cycles": -2, "record_cycles": 0, "empty_cycles": 1}
    lengths = {254: 256, 0: 0, 1: 0, 2: 4}
    records = [line for i, length in enumerate(lengths) for line in span(1, 300 * i, length)]
    assert trace(records, {1: "r"}, cost).time_shift().tolist() == list(lengths.values())


def test_without_a_calibration_nothing_is_assumed() -> None:
    bare = trace([(Kind.BEGIN, 1, 0), (Kind.END, 1, 10)], {1: "r"}, {})
    with pytest.raises(WarplensError, match="k has no calibration.*calibrate"):
        bare.time_shift()
    with pytest.raises(WarplensError, match="no calibration"):
        Trace(bare.spans, replace(bare.meta, launches=())).time_shift()


def solved(region: int, record: int, **odd: int) -> Calibration:
    """From a device with these constants whose fma takes 4 cycles; `odd` cycles more in the regions of those names."""
    names = {1: "short", 2: "long", 3: "outer", 4: "inner", 5: "empty"}
    fma = 4
    lengths = {
        "short": fma * SHORT + region,
        "long": fma * LONG + region,
        "outer": 3 * fma * SHORT + region + 2 * record,
        "empty": 16,
    }
    lengths = {name: length + odd.get(name, 0) for name, length in lengths.items()}
    records: list[tuple[Kind, int, int]] = []
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
    return solve(trace(records, names, {}), "made up")


def test_the_calibration_finds_the_constants_of_a_device() -> None:
    found = solved(region=11, record=7)
    assert (found.region, found.record, found.empty, found.alone) == (11, 7, 16, 22.5)
    assert found.cost == {"region_cycles": 11, "record_cycles": 7, "empty_cycles": 16, "record_alone_cycles": 22.5}


@pytest.mark.parametrize("name", ["short", "long", "outer", "empty"])
@pytest.mark.parametrize("cycle", [-1, 1])
def test_an_odd_cycle_in_one_median_moves_no_constant_by_more_than_itself(name: str, cycle: int) -> None:
    """Chains of 64 and 128 fmas tell how long one takes: shared among them, an odd cycle must not count 64 times."""
    right, found = solved(region=-2, record=3), solved(region=-2, record=3, **{name: cycle})
    moved = [abs(found.cost[key] - right.cost[key]) for key in right.cost]
    assert max(moved) <= 1
    assert name != "long" or max(moved) == 0


def test_a_record_never_takes_less_than_nothing() -> None:
    """A record that hides in the chain it interrupts reads 0, and an odd cycle below that is noise, not a gain."""
    assert solved(region=-2, record=0, outer=-1).record == 0
    assert solved(region=-2, record=0, short=1).record == 0
