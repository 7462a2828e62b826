"""Lifetimes of blocks that were not recorded, which a file may have damaged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.support.wave_capture import launch_of, waves
from warplens.analyse.known_blocks import known_blocks, known_lives
from warplens.decode import decode
from warplens.errors import CaptureError
from warplens.launch.block_sampler import sample_launches
from warplens.record.capture import BLOCK_LIVES, SAMPLED, Capture, Device
from warplens.trace.schema import LaunchInfo


@cache
def _sampled() -> LaunchInfo:
    launch = launch_of(waves(60, uneven=40, spans=20), warps=1)
    capture = Capture(list(sample_launches([launch], 1 << 13)), device=Device("test", sm_count=16, capability="9.0"))
    (info,) = decode(capture).meta.launches
    return info


def test_lifetimes_of_all_blocks_are_read() -> None:
    info = _sampled()
    assert known_blocks(info, info.extra[SAMPLED]["with_records"]) == 60
    assert len(known_lives(info, 60)) == 60


def test_a_sample_that_was_cut_further_knows_its_own_blocks_only() -> None:
    info = _sampled()
    recorded = info.extra[SAMPLED]["with_records"] - 1
    assert known_blocks(info, recorded) == recorded


@pytest.mark.parametrize(
    ("change", "known", "words"),
    [
        (lambda text: text, 59, "does not hold 59 blocks"),
        (lambda text: text, 61, "does not hold 61 blocks"),
        (lambda text: text[: len(text) // 2], 60, "malformed|does not hold"),
        (lambda text: "!" + text[1:], 60, "malformed|does not hold"),
    ],
)
def test_damaged_lifetimes_are_refused(change, known, words) -> None:  # type: ignore[no-untyped-def]
    info = _sampled()
    damaged = replace(info, extra={**info.extra, BLOCK_LIVES: change(info.extra[BLOCK_LIVES])})
    with pytest.raises(CaptureError, match=words):
        known_lives(damaged, known)


def test_a_block_outside_the_grid_is_refused() -> None:
    with pytest.raises(CaptureError, match="of a grid of"):
        known_lives(replace(_sampled(), grid=(8, 1, 1)), 60)
