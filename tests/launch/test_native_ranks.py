"""Blocks that are ranked and kept in C are those that numpy ranks and keeps, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.wave_capture import Block, launch_of, waves
from warplens.launch.block_sampler import RankedBlocks, rank_blocks, sample_launches
from warplens.launch.native_ranks import rank_natively
from warplens.record.capture import AUTOMATIC, Launch
from warplens.record.layout import HEADER, MAX_SM

BLOCKS = st.lists(
    st.builds(
        lambda sm, begin, lasts, spans: Block(sm, begin, begin + lasts, spans),
        st.sampled_from([0, 1, 2, 3, 7, 131]),
        st.integers(0, 40) | st.integers(0, 5000),
        st.integers(1, 30) | st.integers(1, 900),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=60,
)
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from(
            [
                ("state", 0), ("magic", 0), ("written", 0), ("written", 1), ("written", 10**6), ("start_ns", 0),
                ("exit_ns", 2**63 + 5), ("block", 3), ("sm", MAX_SM), ("sm", MAX_SM + 1),
            ]
        ),
    ),
    max_size=12,
)  # fmt: skip


def damaged(launch: Launch, damage: Sequence[tuple[int, tuple[str, int]]]) -> Launch:
    raw = launch.raw.copy()
    headers = np.ndarray(launch.tracks, HEADER, raw, strides=(launch.stride,))
    for at, (name, value) in damage:
        headers[name][at % launch.tracks] = value
    return replace(launch, raw=raw)


def both(launches: Sequence[Launch], bound: int) -> list[list[Launch]]:
    found = []
    for native in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WARPLENS_NATIVE", native)
            found.append(sample_launches(launches, bound))
    return found


@given(
    st.lists(st.tuples(BLOCKS, DAMAGE), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 1 << 13),
    st.booleans(),
)
@example([(waves(600, sms=132), [(5, ("state", 0))])], 2, 1 << 17, False)
def test_c_keeps_what_numpy_keeps(
    shapes: list[tuple[list[Block], list[tuple[int, tuple[str, int]]]]], warps: int, bound: int, automatic: bool
) -> None:
    launches = [damaged(launch_of(blocks, warps=warps, extra={AUTOMATIC: automatic}), bad) for blocks, bad in shapes]
    for one, other in zip(*both(launches, bound), strict=True):
        assert one.raw.tobytes() == other.raw.tobytes()
        assert json.dumps(one.extra) == json.dumps(other.extra)


@given(BLOCKS, DAMAGE, st.integers(1, 3))
def test_c_ranks_as_numpy_does(blocks: list[Block], damage: list[tuple[int, tuple[str, int]]], warps: int) -> None:
    launch = damaged(launch_of(blocks, warps=warps), damage)
    (one,), other = rank_blocks([launch]), RankedBlocks(launch)
    assert one.bytes == other.bytes
    assert one.order.tolist() == other.order.tolist()
    assert one.lives == other.lives
    assert one.blocks.slots.tolist() == other.blocks.slots.tolist()
    assert one.blocks.unfinished.tolist() == other.blocks.unfinished.tolist()


def test_blocks_of_many_launches_are_ranked_together() -> None:
    launches = [launch_of(waves(40, sms=1 + number), warps=number % 3 + 1) for number in range(300)]
    assert sum(launch.tracks for launch in launches) > 1 << 14, "several threads take part"
    found = rank_natively(launches, [False] * len(launches))
    assert [one and one.blocks for one in found] == [40] * 300
    assert [one.order.tolist() for one in found if one] == [RankedBlocks(one).order.tolist() for one in launches]


def test_headers_that_do_not_lie_in_order_are_left_to_numpy() -> None:
    launch = launch_of(waves(8), warps=1)
    raw = launch.raw.reshape(8, -1)[::-1].copy().reshape(-1)
    strided = np.repeat(launch.raw, 2)[::2]
    found = rank_natively([launch, replace(launch, raw=raw), replace(launch, raw=strided)], [False] * 3)
    assert [one is None for one in found] == [False, True, True]
