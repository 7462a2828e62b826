"""A matmul recorded on an H200 (tests/golden/make_triton_capture.py): what decoding must make of real records."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import warplens as wl

CAPTURE = Path(__file__).parents[1] / "golden" / "captures" / "triton_matmul.wlcap"
LAUNCHES, BLOCKS, WARPS, STEPS = 2, 16, 4, 8


def test_every_record_of_a_real_matmul_is_decoded() -> None:
    trace = wl.load(CAPTURE)
    stats = trace.stats()
    tracks = LAUNCHES * BLOCKS * WARPS
    assert {row.region: row.count for row in stats} == {
        "load": tracks * STEPS, "dot": tracks * STEPS, "store": tracks
    }  # fmt: skip
    losses = trace.meta.losses
    assert (losses.tracks, losses.records_lost, losses.records_kept) == (tracks, 0, 2 * len(trace))
    assert losses.clock_backward == losses.orphan_ends == losses.open_spans == 0
    # Loads of a pipelined loop only issue copies: the fastest is a handful of cycles, a product never is.
    assert stats["load"].min < 20
    assert stats["dot"].min > 100
    starts = np.asarray(trace.numpy("start_ns"))
    assert starts.min() == 0
    assert starts.max() < 1_000_000_000, "two launches right after each other"
