"""How many warps an SM held, also where most blocks were not recorded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from tests.support.paths import GOLDEN
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.parallelism import parallelism
from warplens.decode.trace_loader import load
from warplens.trace.schema import LaunchInfo, Meta


def _per_sm(blocks: int, of: int, sms: int = 4) -> float:
    """Warps per SM of `blocks` recorded blocks of two warps, in a grid `of` so many."""
    spans = [Span("work", 0, 100, block=b, warp=w, sm=b % sms) for b in range(blocks) for w in range(2)]
    info = LaunchInfo(0, "kernel", grid=(of, 1, 1), begin_ns=0, end_ns=100)
    lives = Lifetimes.of(make_trace(spans, meta=Meta(launches=(info,), devices={"0": {"sm_count": sms}})))
    return parallelism(lives, np.zeros(len(lives.regions), bool)).per_sm


def test_blocks_that_are_unknown_ran_on_the_other_sms() -> None:
    assert _per_sm(4, of=4) == pytest.approx(2)
    assert _per_sm(1, of=4) == pytest.approx(2)
    assert _per_sm(2, of=8) == pytest.approx(4)


def test_a_recording_of_two_blocks_never_holds_more_warps_than_an_sm_has_room_for() -> None:
    lives = Lifetimes.of(load(GOLDEN / "captures" / "cuda_pipeline.wlcap"))  # 2 of 132 blocks of 4 warps, 132 SMs
    assert 3 < parallelism(lives, np.zeros(len(lives.regions), bool)).per_sm <= 4
