"""Kernels of the CuTe DSL recorded on an H200 (benchmarks/cute_on_gpu.py): what decoding must make of real records."""

from __future__ import annotations

from pathlib import Path

import pytest

import warplens as wl

CAPTURES = Path(__file__).parents[1] / "golden" / "captures"
SIZE, M, N, K, CONSUMERS = 512, 128, 256, 64, 8


def test_a_warp_specialised_gemm_decodes_to_what_each_warp_did() -> None:
    trace = wl.load(CAPTURES / "cute_gemm.wlcap")
    blocks, steps = (SIZE // M) * (SIZE // N), SIZE // K
    stats = trace.stats()
    assert {row.region: row.count for row in stats} == {
        "wait empty": blocks * steps, "load": blocks * steps,
        "wait full": CONSUMERS * blocks * steps, "mma": CONSUMERS * blocks * steps, "store": CONSUMERS * blocks,
    }  # fmt: skip
    losses = trace.meta.losses
    assert losses.tracks == 12 * blocks
    assert losses.records_lost == losses.open_spans == losses.orphan_ends == losses.tracks_without_exit == 0
    assert {row["warp"] for row in trace.select(region="load").spans.to_pylist()} == {0}
    assert {row["warp"] for row in trace.select(region="mma").spans.to_pylist()} == set(range(4, 12))
    # The first stages are empty at once, the later ones only when their product is done.
    waits = sorted(trace.select(region="wait empty", block=0).spans.to_pylist(), key=lambda row: row["start_cycle"])
    assert max(row["dur_cycles"] for row in waits[:4]) < min(row["dur_cycles"] for row in waits[5:])
    # A product of 64x256x64 on one warp group keeps the tensor cores busy for 512 cycles of two groups' turns.
    assert stats["mma"].p50 > 256
    (launch,) = trace.meta.launches
    assert (launch.kernel, tuple(launch.grid), tuple(launch.block)) == ("gemm", (4, 2, 1), (384, 1, 1))
    assert trace.meta.locations["mma"].startswith("examples/cute/gemm.py:")


def test_a_vector_add_decodes_with_an_error_bar_below_a_step_of_the_timer() -> None:
    trace = wl.load(CAPTURES / "cute_vector_add.wlcap")
    warps = (1 << 16) // 8 // 32
    assert {row.region: row.count for row in trace.stats()} == {"load": 8 * warps, "store": 8 * warps}
    assert trace.meta.losses.records_lost == 0
    assert trace.meta.clock.residual_p99_ns == pytest.approx(16, abs=16)
