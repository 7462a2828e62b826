"""The SM Profiler's Triton quick start with only its import changed, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import fake_torch

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.sm_profiler_kernel import EVT_COMPUTE, EVT_MEMORY, EVT_SYNC, my_kernel  # noqa: E402
from warplens.compat.sm_profiler import SmProfiler  # noqa: E402
from warplens.compat.sm_profiler.triton_ops import (  # noqa: E402
    profiler_event_instant,
    profiler_init,
)


@triton.jit
def unknown_event(profiler_buffer_ptr, event):
    profiler_event_instant(profiler_init(profiler_buffer_ptr), tl.program_id(0), 0, event)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch) as fake:
        fake_torch.install(monkeypatch, fake)
        yield fake
        for kernel in (my_kernel, unknown_event):
            kernel.device_caches.clear()


def profiler_for(blocks: int, events: int = 100, **options: Any) -> SmProfiler:
    profiler = SmProfiler(num_blocks=blocks, num_groups=1, max_events_per_group=events, **options)
    profiler.register_event(EVT_COMPUTE, "compute")
    profiler.register_event(EVT_MEMORY, "memory")
    profiler.register_event(EVT_SYNC, "sync")
    return profiler


def run(gpu: FakeGpu, profiler: SmProfiler, blocks: int = 4, steps: int = 3) -> None:
    source = gpu.tensor(np.arange(blocks * 128, dtype=np.float32))
    target = gpu.tensor(np.zeros(blocks * 128, np.float32))
    my_kernel[(blocks,)](profiler.get_buffer(), source, target, steps, BLOCK=128)
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2)


def test_the_quick_start_records_every_event_of_every_block(gpu: FakeGpu, tmp_path: Path, capsys: Any) -> None:
    profiler = profiler_for(16)
    run(gpu, profiler)
    profiler.export(tmp_path / "trace.json")
    profiler.print_stats()
    trace = profiler.trace()
    rows = trace.spans.to_pylist()
    assert sorted((row["block"], row["region"], row["kind"]) for row in rows) == sorted(
        (block, region, kind)
        for block in range(4)
        for region, kind, times in (("compute", "span", 1), ("memory", "span", 3), ("sync", "instant", 1))
        for _ in range(times)
    )
    assert all(row["depth"] == 1 for row in rows if row["region"] == "memory")
    assert trace.meta.losses.records_lost == 0
    assert trace.meta.losses.tracks_unwritten == 12
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= {"compute", "memory"}
    captured = capsys.readouterr()
    assert "memory" in captured.out
    assert captured.err == ""


def test_a_small_buffer_loses_records_counts_them_and_writes_nothing_outside(gpu: FakeGpu, capsys: Any) -> None:
    profiler = profiler_for(2, events=2)
    guard = gpu.tensor(np.full(1 << 12, 7, np.int64))
    run(gpu, profiler, blocks=3)
    trace = profiler.trace()
    assert (guard.numpy() == 7).all(), "the memory after the buffer"
    assert trace.meta.losses.records_written == 2 * 9
    assert trace.meta.losses.records_lost == 2 * (9 - 4)
    complaint = capsys.readouterr().err
    assert "9 records were rejected" in complaint, "all of block 2's"
    assert "max_events_per_group=5" in complaint


def test_an_event_past_the_last_is_refused(gpu: FakeGpu, capsys: Any) -> None:
    profiler = profiler_for(1)
    for event in (31, 32, -1):
        unknown_event[(1,)](profiler.get_buffer(), event)
    assert len(profiler.trace()) == 1
    assert "2 records were rejected" in capsys.readouterr().err


@pytest.mark.parametrize("enabled", [False, True])
def test_a_program_runs_to_its_end_where_nothing_was_recorded(
    gpu: FakeGpu, tmp_path: Path, capsys: Any, enabled: bool
) -> None:
    profiler = profiler_for(4, enabled=enabled)
    if not enabled:
        run(gpu, profiler)
        assert profiler.get_buffer().numel() * 8 == 128, "it takes no memory"
    assert profiler.export(tmp_path / "trace.json") is None
    profiler.print_stats()
    profiler.init_buffer()
    assert not (tmp_path / "trace.json").exists()
    captured = capsys.readouterr()
    assert captured.err.count("nothing was recorded") == 2
    assert ("enabled=False" in captured.err) == (not enabled)


def test_init_buffer_forgets_the_launch_before(gpu: FakeGpu) -> None:
    profiler = profiler_for(4)
    run(gpu, profiler)
    profiler.init_buffer()
    run(gpu, profiler, blocks=1)
    assert set(profiler.trace().spans["block"].to_pylist()) == {0}
