"""Edges against warps on exact models of mbarriers, named barriers and cluster barriers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated_mbarrier import BEFORE, WAKE, BarrierWorld, make_capture, many_producers, meeting, pipeline
from warplens.decode import decode
from warplens.decode.mbarrier_phases import WAKE_CYCLES
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.barrier_rows import UNKNOWN_ARRIVAL
from warplens.trace.model import Trace


def tracks_of(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """For each row: its warp, and its number among the warp's barrier records of its kind (arrivals, or waits)."""
    warp, value = trace.numpy("warp"), np.nan_to_num(trace.numpy("value")).astype(np.int64)
    is_wait = (value >> 32 & 15) == Operation.WAIT
    is_record = trace.numpy("released_by") != -1
    number = np.zeros(len(trace), np.int64)
    for kind in (True, False):
        for one in np.unique(warp):
            rows = np.flatnonzero(is_record & (is_wait == kind) & (warp == one))
            number[rows] = np.arange(len(rows))
    return warp, number


def check(world: BarrierWorld, trace: Trace) -> int:
    """Every wait that blocked has the arrival that truly released it. Returns how many did."""
    warp, number = tracks_of(trace)
    table = trace.edges.to_pylist()
    found = {(int(warp[edge["wait_record"]]), int(number[edge["wait_record"]])): edge for edge in table}
    start = trace.numpy("start_cycle")
    times = {
        (int(warp[row]), int(number[row])): int(start[row])
        for row in np.flatnonzero((trace.numpy("released_by") != -1) & (trace.numpy("parent") < 0))
    }
    blocked = 0
    for wait in world.waits:
        edge = found.get((wait.warp, wait.number))
        if not wait.blocked:
            assert edge is None or edge["waited_cycles"] <= WAKE + BEFORE, (wait, edge)
            continue
        blocked += 1
        assert edge is not None, wait
        assert edge["kind"] == ("copy" if wait.by_copy else "arrive"), (wait, edge)
        row = edge["arrival_record"]
        source = int(warp[row]), int(number[row])
        # Two arrivals within the cycles between record and effect cannot be told apart by their records.
        assert source == wait.source or abs(int(start[row]) - times[wait.source]) <= BEFORE, (wait, edge)
        waiting = edge["wait"]
        assert start[row] <= start[waiting] + trace.numpy("dur_cycles")[waiting]
    return blocked


@settings(max_examples=120, deadline=None)
@given(
    stages=st.integers(1, 4), tiles=st.integers(1, 24), consumers=st.integers(1, 4), slowest=st.integers(30, 900),
    copies=st.booleans(), seed=st.integers(0, 1 << 30),
)  # fmt: skip
def test_a_pipelines_waits_have_the_arrivals_that_released_them(
    stages: int, tiles: int, consumers: int, slowest: int, copies: bool, seed: int
) -> None:
    chance = random.Random(seed)
    counts, programs = pipeline(
        stages, tiles, consumers, lambda: chance.randint(20, slowest),
        (lambda: chance.randint(400, 1500)) if copies else None,
    )  # fmt: skip
    world = BarrierWorld(counts, seed)
    world.run(programs)
    check(world, decode(world.capture()))


@settings(max_examples=100, deadline=None)
@given(
    stages=st.integers(1, 3), tiles=st.integers(1, 16), kinds=st.lists(st.booleans(), min_size=2, max_size=4),
    slowest=st.integers(30, 900), seed=st.integers(0, 1 << 30),
)  # fmt: skip
def test_copies_and_arrivals_of_several_warps_are_those_of_the_right_phase(
    stages: int, tiles: int, kinds: list[bool], slowest: int, seed: int
) -> None:
    chance = random.Random(seed)
    counts, programs = many_producers(
        stages, tiles, kinds, lambda: chance.randint(20, slowest), lambda: chance.randint(300, 1500)
    )
    world = BarrierWorld(counts, seed)
    world.run(programs)
    trace = decode(world.capture())
    warp, number = tracks_of(trace)
    found = {
        (int(warp[edge["wait_record"]]), int(number[edge["wait_record"]])): edge for edge in trace.edges.to_pylist()
    }
    start = trace.numpy("start_cycle")
    for wait in world.waits:
        if not wait.blocked:
            continue
        edge = found[wait.warp, wait.number]
        row = edge["arrival_record"]
        assert world.phase_of[int(warp[row]), int(number[row])] == wait.phase, (wait, edge)
        # A copy that ends right after the last arrival looks like that arrival.
        nearly = wait.completed - int(start[row]) <= WAKE_CYCLES
        assert (edge["kind"] == "copy") == wait.by_copy or nearly, (wait, edge)


@settings(max_examples=80, deadline=None)
@given(warps=st.integers(2, 8), rounds=st.integers(1, 20), slowest=st.integers(21, 600), seed=st.integers(0, 1 << 30))
def test_the_last_warp_releases_all_that_met_at_a_barrier(warps: int, rounds: int, slowest: int, seed: int) -> None:
    chance = random.Random(seed)
    counts, programs = meeting(warps, rounds, lambda: chance.randint(20, slowest))
    world = BarrierWorld(counts, seed)
    world.run(programs)
    blocked = check(world, decode(world.capture()))
    assert slowest < 300 or rounds < 4 or blocked >= rounds


def test_both_decoders_give_the_same_edges() -> None:
    counts, programs = pipeline(3, 12, 2, lambda: 100, lambda: 700)
    world = BarrierWorld(counts)
    world.run(programs)
    native, plain = decode(world.capture()), decode(world.capture(), native=False)
    assert native.edges.num_rows > 12
    assert native.spans.equals(plain.spans)


def writer(warp: int, block: int = 0) -> TrackWriter:
    made = TrackWriter(64, block=block, warp=warp, sm=block)
    made.start(1000, 1_001_000)
    return made


def decoded(writers: list[TrackWriter], warps: int, grid: tuple[int, int, int] = (1, 1, 1)) -> Trace:
    for one in writers:
        one.exit(100_000, 1_100_000)
    return decode(make_capture([one.to_bytes() for one in writers], warps=warps, grid=grid, capacity=64))


def wait(one: TrackWriter, begin: int, end: int, word: BarrierWord) -> None:
    one.record(Kind.BEGIN, 3, begin)
    one.barrier(3, begin, word)
    one.record(Kind.END, 3, end)


def test_a_wait_whose_arrival_was_not_recorded_says_so() -> None:
    one = writer(0)
    wait(one, 2000, 9000, BarrierWord(Operation.WAIT, 64, 0))
    trace = decoded([one], 1)
    assert trace.edges.to_pylist()[0]["kind"] == "unknown"
    assert trace.numpy("released_by").tolist() == [-1, UNKNOWN_ARRIVAL]


def test_a_wait_that_found_its_phase_complete_waited_for_nobody() -> None:
    producer, consumer = writer(0), writer(1)
    producer.barrier(1, 1500, BarrierWord(Operation.ARRIVE, 64))
    wait(consumer, 3000, 3040, BarrierWord(Operation.WAIT, 64, 0))
    edge = decoded([producer, consumer], 2).edges.to_pylist()[0]
    assert (edge["waited_cycles"], edge["slack_ns"]) == (0, 1500)


def test_a_copy_that_ends_long_after_the_last_arrival_releases_the_wait() -> None:
    producer, helper, consumer = (writer(warp) for warp in range(3))
    producer.barrier(2, 1500, BarrierWord(Operation.COPY, 64))
    helper.barrier(1, 1600, BarrierWord(Operation.ARRIVE, 64))
    wait(consumer, 1400, 5000, BarrierWord(Operation.WAIT, 64, 0))
    trace = decoded([producer, helper, consumer], 3)
    edge = trace.edges.to_pylist()[0]
    assert (edge["kind"], trace.numpy("warp")[edge["arrival"]]) == ("copy", 0)


def test_an_arrival_releases_one_phase_only() -> None:
    """The arrival of the second phase was not recorded: the first one's does not stand for it."""
    producer, consumer = writer(0), writer(1)
    producer.barrier(1, 1500, BarrierWord(Operation.ARRIVE, 64))
    wait(consumer, 1400, 1600, BarrierWord(Operation.WAIT, 64, 0))
    wait(consumer, 1700, 1740, BarrierWord(Operation.WAIT, 64, 1))
    (edge,) = decoded([producer, consumer], 2).edges.to_pylist()
    assert edge["phase"] == 0


def test_an_instruction_that_did_not_execute_is_no_arrival() -> None:
    producer, consumer = writer(0), writer(1)
    producer.barrier(1, 1500, BarrierWord(Operation.ARRIVE, 64))
    producer.barrier(1, 2500, BarrierWord(Operation.NONE, 64))
    wait(consumer, 1400, 3000, BarrierWord(Operation.WAIT, 64, 0))
    trace = decoded([producer, consumer], 2)
    assert trace.numpy("start_cycle")[trace.edges["arrival_record"][0].as_py()] == 1500


@settings(max_examples=60, deadline=None)
@given(
    warps=st.integers(2, 8), rounds=st.integers(1, 12), seed=st.integers(0, 1 << 30), counted=st.booleans(),
    ids=st.integers(1, 3),
)  # fmt: skip
def test_the_last_warp_at_a_named_barrier_releases_the_others(
    warps: int, rounds: int, seed: int, counted: bool, ids: int
) -> None:
    chance = random.Random(seed)
    tracks = [writer(warp) for warp in range(warps)]
    clocks = [1000] * warps
    truth: list[int] = []
    for turn in range(rounds):
        arrived = [clock + chance.randint(10, 500) for clock in clocks]
        last = max(range(warps), key=lambda warp: arrived[warp])
        for warp in range(warps):
            left = max(arrived) + chance.randint(1, 30)
            extra = 32 * warps if counted else 0
            wait(tracks[warp], arrived[warp], left, BarrierWord(Operation.SYNC, turn % ids, 0, extra))
            clocks[warp] = left
            if warp != last and arrived[warp] < arrived[last]:
                truth.append(arrived[last])
    trace = decoded(tracks, warps)
    start, parent = trace.numpy("start_cycle"), trace.numpy("parent")
    got = [int(start[parent[row]]) for row in trace.edges["arrival_record"].to_pylist()]
    slower = trace.edges.filter(np.array(trace.edges["waited_cycles"]) > 0)
    assert sorted(got)[-len(truth) :] == sorted(truth) or sorted(set(got)) == sorted(set(truth))
    assert slower.num_rows == len(truth)


def test_named_barriers_with_other_warps_each_time_are_told_apart_by_their_count() -> None:
    tracks = [writer(warp) for warp in range(4)]
    first = BarrierWord(Operation.SYNC, 1, 0, 64)
    wait(tracks[0], 1100, 2010, first)
    wait(tracks[1], 2000, 2030, first)
    wait(tracks[2], 2005, 3010, first)  # comes after the phase of warps 0 and 1 completed, before they left
    tracks[3].barrier(1, 3000, BarrierWord(Operation.NAMED_ARRIVE, 1, 0, 64))
    trace = decoded(tracks, 4)
    pairs = {
        (int(trace.numpy("warp")[edge["wait"]]), int(trace.numpy("warp")[edge["arrival"]]))
        for edge in trace.edges.to_pylist()
    }
    assert pairs == {(0, 1), (2, 3)}


def test_edges_cross_the_blocks_of_a_cluster() -> None:
    """Block 1 arrives at the barrier of block 0; then both meet at the cluster barrier, block 0 last."""
    zero, one = writer(0, block=0), writer(0, block=1)
    remote = BarrierWord(Operation.REMOTE_ARRIVE, 0 << 24 | 64, 0, 1 | (2 - 1) << 4)
    one.barrier(1, 5000, remote)
    wait(zero, 3000, 5100, BarrierWord(Operation.WAIT, 64, 0))
    one.barrier(1, 5200, BarrierWord(Operation.CLUSTER_ARRIVE, 0))
    wait(one, 5210, 8100, BarrierWord(Operation.CLUSTER_WAIT, 0))
    zero.barrier(1, 8000, BarrierWord(Operation.CLUSTER_ARRIVE, 0))
    wait(zero, 8010, 8110, BarrierWord(Operation.CLUSTER_WAIT, 0))
    trace = decoded([zero, one], 1, grid=(2, 1, 1))
    block = trace.numpy("block")
    found = {(edge["kind"], int(block[edge["wait"]]), int(block[edge["arrival"]])) for edge in trace.edges.to_pylist()}
    assert {("arrive", 0, 1), ("cluster", 1, 0)} <= found


def test_a_multicast_copy_releases_waits_in_every_block_it_names() -> None:
    zero, one = writer(0, block=0), writer(0, block=1)
    zero.barrier(2, 2000, BarrierWord(Operation.MULTICAST, 0 << 24 | (2 - 1) << 28 | 64, 0, 0b11))
    wait(zero, 2100, 4000, BarrierWord(Operation.WAIT, 64, 0))
    wait(one, 2100, 4000, BarrierWord(Operation.WAIT, 64, 0))
    trace = decoded([zero, one], 1, grid=(2, 1, 1))
    assert [edge["kind"] for edge in trace.edges.to_pylist()] == ["copy", "copy"]
    assert {int(trace.numpy("block")[edge["wait"]]) for edge in trace.edges.to_pylist()} == {0, 1}


@pytest.mark.parametrize("ended", [True, False])
def test_a_region_may_begin_in_one_warp_and_end_in_another(ended: bool) -> None:
    first, second = writer(0), writer(1)
    first.barrier(2, 2000, BarrierWord(Operation.EVENT_START, 5))
    first.barrier(2, 2100, BarrierWord(Operation.EVENT_START, 6))
    second.barrier(2, 2600, BarrierWord(Operation.EVENT_END, 6))
    if ended:
        second.barrier(2, 3000, BarrierWord(Operation.EVENT_END, 5))
    rows = decoded([first, second], 2).spans.to_pylist()
    spans = [(row["warp"], row["dur_cycles"], row["open"]) for row in rows if row["kind"] == "span"]
    assert spans == [(0, 1000 if ended else 0, not ended), (0, 500, False)]
    assert [row["kind"] for row in rows if row["warp"] == 1] == ["instant"] * (1 + ended)
    assert all(row["value"] is None for row in rows)


def test_a_warp_ends_its_own_region_before_that_of_another() -> None:
    warps = [writer(0), writer(1)]
    for warp, clock in enumerate((2000, 2100)):
        warps[warp].barrier(2, clock, BarrierWord(Operation.EVENT_START, 5))
    for warp, clock in ((1, 2200), (0, 2900)):
        warps[warp].barrier(2, clock, BarrierWord(Operation.EVENT_END, 5))
    rows = decoded(warps, 2).spans.to_pylist()
    assert [(row["warp"], row["dur_cycles"]) for row in rows if row["kind"] == "span"] == [(0, 900), (1, 100)]
