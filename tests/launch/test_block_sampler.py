"""Which blocks a small trace keeps, and that what is known of all blocks stays right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warplens as wl
from tests.support.wave_capture import Block, launch_of, waves
from warplens.analyse.findings import findings
from warplens.analyse.imbalance import imbalance
from warplens.analyse.occupancy import achieved
from warplens.analyse.roofline import roofline
from warplens.analyse.sample_share import WITHHELD, sample_line, sample_share
from warplens.analyse.waves import waves as waves_of
from warplens.decode import decode
from warplens.errors import UsageError
from warplens.launch.block_sampler import (
    BYTES_PER_SLOT,
    TrackSlots,
    block_headers,
    choose_blocks,
    sample_launch,
    sample_launches,
)
from warplens.record.block_lives import BlockLives, pack_lives, unpack_lives
from warplens.record.capture import BETWEEN, BLOCK_LIVES, SAMPLED, Capture, Device, Launch
from warplens.record.layout import HEADER, HEADER_BYTES
from warplens.trace.model import Trace

DEVICE = Device("test", sm_count=16, capability="9.0")

BLOCKS = st.lists(
    st.builds(
        lambda sm, begin, lasts, spans: Block(sm, begin, begin + lasts, spans),
        st.integers(0, 7),
        st.integers(0, 5000),
        st.integers(1, 900),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=60,
)


def traced(*launches: Launch) -> Trace:
    return decode(Capture(list(launches), device=DEVICE))


@given(BLOCKS, st.integers(0, 700))
def test_the_choice_keeps_to_its_bound_and_covers_time_and_sms(blocks: list[Block], slots: int) -> None:
    found = block_headers(launch_of(blocks, warps=1))
    kept = choose_blocks(found, slots)
    cost = found.slots[np.isin(found.lives.number, kept)].sum()
    assert cost <= slots or len(kept) == 1
    assert np.array_equal(kept, choose_blocks(found, slots))
    assert len(set(kept.tolist())) == len(kept)
    most = int(found.slots.max())
    if slots >= 4 * most:
        chosen = [blocks[number] for number in kept.tolist()]
        assert min(block.begin for block in chosen) == min(block.begin for block in blocks)
        assert max(block.end for block in chosen) == max(block.end for block in blocks)
        assert max(block.begin for block in chosen) == max(block.begin for block in blocks)
    sms = {block.sm for block in blocks}
    if slots >= (4 + len(sms)) * most:
        assert {blocks[number].sm for number in kept.tolist()} == sms
    if slots >= found.slots.sum():
        assert len(kept) == len(blocks)


@given(BLOCKS, st.integers(1, 4), st.integers(1 << 8, 1 << 13))
def test_launches_share_the_bound_and_small_ones_stay_whole(blocks: list[Block], copies: int, bound: int) -> None:
    small = launch_of([Block(0, 0, 10, 1)], warps=1)
    launches = [small, *[launch_of(blocks, warps=1) for _ in range(copies)]]
    kept = sample_launches(launches, bound)
    records = [one.extra.get(SAMPLED, {"records": int(block_headers(one).slots.sum())})["records"] for one in kept]
    least = [int(block_headers(one).slots.max()) for one in launches]
    texts = [len(one.extra.get(BLOCK_LIVES, "")) for one in kept]
    assert BYTES_PER_SLOT * sum(records) + sum(texts) <= max(bound, BYTES_PER_SLOT * sum(least))
    if bound >= (copies + 1) * BYTES_PER_SLOT * 2:
        assert kept[0] is small
    assert [len(one.raw) for one in sample_launches(launches, None)] == [len(one.raw) for one in launches]


def test_kept_blocks_spread_over_the_launchs_time() -> None:
    blocks = waves(1600, sms=16)
    found = block_headers(launch_of(blocks, warps=1))
    kept = choose_blocks(found, 100 * 16)
    assert len(kept) == 100
    begins = np.array([blocks[number].begin for number in kept.tolist()])
    per_tenth = np.histogram(begins, bins=10, range=(0, 100_000))[0]
    assert per_tenth.min() >= 7
    assert per_tenth.max() <= 13
    per_sm = np.bincount([blocks[number].sm for number in kept.tolist()], minlength=16)
    assert per_sm.max() - per_sm.min() <= 2


def test_a_sample_keeps_whole_blocks_and_says_which_share() -> None:
    launch = launch_of(waves(64), warps=4)
    sample = sample_launch(launch, np.array([3, 40]))
    assert sample.extra[SAMPLED] == {"blocks": 2, "of": 64, "records": 2 * 4 * 16, "of_records": 64 * 4 * 16, "lost": 0}
    trace = traced(sample)
    assert sorted(set(zip(trace.numpy("block").tolist(), trace.numpy("warp").tolist(), strict=True))) == [
        (block, warp) for block in (3, 40) for warp in range(4)
    ]
    assert trace.meta.losses.clean
    assert trace.stats()["work"].share == pytest.approx(1.0)


def test_what_a_warp_that_never_wrote_left_stays_counted() -> None:
    launch = launch_of(waves(8), warps=1)
    raw = launch.raw.reshape(-1, launch.stride).copy()
    raw[5] = 0
    sample = sample_launch(replace(launch, raw=raw.reshape(-1)), np.array([0]))
    assert traced(sample).meta.losses.tracks_unwritten == 1


def test_blocks_that_never_ended_and_records_that_did_not_fit_stay_known() -> None:
    launch = launch_of(waves(200, spans=40), warps=1)
    raw = launch.raw.reshape(-1, launch.stride).copy()
    headers = raw[:, :HEADER_BYTES].copy().view(HEADER).reshape(-1)
    headers["state"][[77, 123]] = 0
    headers["written"][150] += 5
    raw[:, :HEADER_BYTES] = headers.view(np.uint8).reshape(len(raw), -1)
    (sample,) = sample_launches([replace(launch, raw=raw.reshape(-1))], 1 << 16)
    trace = traced(sample)
    assert trace.meta.losses.tracks_without_exit == 2
    assert sample.extra[SAMPLED]["lost"] == 5
    assert "5 records of all blocks did not fit" in sample_line(trace.meta.launches)


@given(BLOCKS)
def test_lifetimes_survive_their_text(blocks: list[Block]) -> None:
    lives = block_headers(launch_of(blocks, warps=1)).lives
    back = unpack_lives(pack_lives(lives), len(lives))
    for name in BlockLives.__dataclass_fields__:
        assert np.array_equal(getattr(back, name), getattr(lives, name))


def sampled_pair(uneven: int = 0) -> tuple[Trace, Trace]:
    launch = launch_of(waves(200, uneven=uneven, spans=40), warps=2)
    (sample,) = sample_launches([launch], 1 << 17)
    assert sample.extra[SAMPLED]["blocks"] < 150
    return traced(launch), traced(sample)


@pytest.mark.parametrize("uneven", [0, 40])
def test_waves_occupancy_and_balance_are_those_of_all_blocks(uneven: int) -> None:
    whole, sample = sampled_pair(uneven)
    assert waves_of(sample)["matmul"] == waves_of(whole)["matmul"]
    assert waves_of(sample)["matmul"].complete
    one, other = achieved(whole)["matmul"], achieved(sample)["matmul"]
    assert other.warps == pytest.approx(one.warps, rel=1e-6)
    assert other.over_time == pytest.approx(one.over_time, rel=1e-6)
    balance, again = imbalance(whole)["matmul"], imbalance(sample)["matmul"]
    for name in ("block_median_ns", "block_factor", "late_blocks", "late_share", "sm_loss", "slow_sms"):
        assert getattr(again, name) == getattr(balance, name)
    times = [(info.begin_ns, info.end_ns) for trace in (whole, sample) for info in trace.meta.launches]
    assert times[0] == times[1]


def test_a_sample_survives_its_file_and_says_so_everywhere(tmp_path: Path) -> None:
    _, sample = sampled_pair()
    sample.save(tmp_path / "t.warplens")
    again = wl.load(tmp_path / "t.warplens")
    share = sample_share(again.meta.launches)
    assert share is not None
    line = sample_line(again.meta.launches)
    assert f"{share['blocks']:,} of 200 blocks recorded (" in line
    assert again.stats().sample == line
    assert repr(again.stats()).splitlines()[0] == line
    assert again.stats().to_json()["sample"] == line
    assert waves_of(again)["matmul"] == waves_of(sample)["matmul"]


def test_what_compares_all_blocks_of_an_sm_is_withheld() -> None:
    _, sample = sampled_pair(uneven=40)
    whole = findings(sample)
    assert "too little in flight" in {one.kind for one in whole.refuted}
    fetching = Trace(sample.spans, sample.meta)
    waiting = findings(fetching, waits_like="^work$")
    assert "too little in flight" in {one.kind for one in waiting.undecided}, "how many bytes they wait for is unknown"
    at = sample.spans.column_names.index("region")
    loads = pc.replace_substring(sample.spans["region"].cast(pa.string()), "work", "load").dictionary_encode()
    found = findings(Trace(sample.spans.set_column(at, "region", loads), sample.meta))
    assert [one.kind for one in found.withheld] == ["too little in flight"]
    assert found.withheld[0].withheld == WITHHELD
    assert "last wave" in {one.kind for one in (*found, *found.refuted)}, "when each block ran is known"
    with pytest.raises(UsageError, match="only some blocks of matmul were recorded"):
        roofline(sample, kernel="matmul", region="work", flops=1e9, bytes=1e6, device="H100")


def test_a_part_of_a_sample_has_the_blocks_in_it() -> None:
    _, sample = sampled_pair()
    part = sample.select(sm=3)
    assert waves_of(part)["matmul"].blocks == len(set(part.numpy("block").tolist()))
    assert not waves_of(part)["matmul"].complete


def test_a_trace_within_its_bound_is_left_alone() -> None:
    launch = launch_of(waves(20))
    (same,) = sample_launches([launch], 64_000_000)
    assert same is launch
    assert sample_line(traced(launch).meta.launches) == ""


def test_the_file_keeps_to_the_bound(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    blocks = [
        replace(block, end=block.end + int(rng.integers(0, 400)), spans=int(rng.integers(50, 150)))
        for block in waves(400, lasts=200_000)
    ]
    launches = [launch_of(blocks, warps=2) for _ in range(2)]
    traced(*launches).save(tmp_path / "whole.warplens")
    bound = 1 << 16
    traced(*sample_launches(launches, bound)).save(tmp_path / "small.warplens")
    assert (tmp_path / "whole.warplens").stat().st_size > bound
    assert bound / 8 < (tmp_path / "small.warplens").stat().st_size <= bound


def test_rows_of_the_code_between_regions_take_their_share_of_the_bound() -> None:
    """A span has two slots, and the code before it is a span of its own, without a slot."""
    plain = launch_of(waves(400, lasts=2000), warps=2)
    regions = {1: "work", 2: "work tiles.py:1"}
    filled = replace(plain, regions=regions, extra={**plain.extra, BETWEEN: [(1, 1, 2)]})
    bound = int(TrackSlots(plain).taken.sum()) * BYTES_PER_SLOT // 2
    blocks = [sample_launches([launch], bound)[0].extra[SAMPLED]["blocks"] for launch in (plain, filled)]
    assert blocks[1] == pytest.approx(blocks[0] / 2, rel=0.1)


def test_lives_without_records_take_their_share_of_the_bound() -> None:
    """Each is a row of the trace, so a launch of which only lives are known is sampled too."""
    launch = launch_of(waves(400, lasts=2000), warps=2)
    raw = launch.raw.copy()
    np.ndarray(launch.tracks, HEADER, raw, strides=(launch.stride,))["written"] = 0
    lives = replace(launch, raw=raw, regions={})
    rows = len(traced(lives))
    assert rows == 800
    (sampled,) = sample_launches([lives], rows * BYTES_PER_SLOT // 2)
    assert 0 < len(traced(sampled)) < rows // 2
    assert sampled.extra[SAMPLED]["with_records"] == sampled.extra[SAMPLED]["blocks"]
    by_hand = replace(launch, raw=raw)
    assert sample_launches([by_hand], rows * BYTES_PER_SLOT // 2) == [by_hand], "hand-written marks: no row, no cost"
