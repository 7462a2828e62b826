"""triton_dist's intra-kernel profiler guide with only its import changed, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import fake_torch

triton = pytest.importorskip("triton", reason="triton is not installed")

from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.triton_dist_kernels import NAMES, copy_1d_tilewise_kernel, grouped  # noqa: E402
from warplens.compat.triton_dist import (  # noqa: E402
    ProfilerBuffer,
    alloc_profiler_buffer,
    export_to_perfetto_trace,
    reset_profiler_buffer,
    set_export_trace_off,
    set_export_trace_on,
    to_trace,
)
from warplens.errors import WarplensError  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with fake_gpu(monkeypatch) as fake:
        fake_torch.install(monkeypatch, fake)
        yield fake
        for kernel in (copy_1d_tilewise_kernel, grouped):
            kernel.device_caches.clear()
    set_export_trace_on()


def run(gpu: FakeGpu, buffer: Any, blocks: int = 3, tiles: int = 7, enable: bool = True) -> None:
    source = gpu.tensor(np.arange(tiles * 128, dtype=np.float32))
    target = gpu.tensor(np.zeros(tiles * 128, np.float32))
    copy_1d_tilewise_kernel[(blocks,)](buffer, source, target, tiles, BLOCK=128, ENABLE=enable)
    np.testing.assert_array_equal(target.numpy(), source.numpy())


def test_the_wrapped_interface_writes_what_each_block_did(gpu: FakeGpu, tmp_path: Path) -> None:
    with ProfilerBuffer(max_num_profile_slots=1000, trace_file="copy", task_names=NAMES) as profile_buf:
        run(gpu, profile_buf)
    assert (tmp_path / "copy.perfetto-trace").stat().st_size > 100
    trace = to_trace(profile_buf, NAMES)
    rows = trace.spans.to_pylist()
    assert [(row["block"], row["region"]) for row in rows] == [
        (tile % 3, NAMES[tile % 2]) for block in range(3) for tile in range(block, 7, 3)
    ]
    assert all(row["dur_cycles"] > 0 and not row["open"] for row in rows)
    assert trace.meta.losses.clean, trace.meta.losses


def test_the_separate_interfaces_and_the_switch(gpu: FakeGpu, tmp_path: Path) -> None:
    profile_buf = alloc_profiler_buffer(max_num_profile_slots=1000)
    run(gpu, profile_buf)
    reset_profiler_buffer(profile_buf)
    run(gpu, profile_buf, blocks=1, tiles=2)
    export_to_perfetto_trace(profiler_buffer=profile_buf, task_names=NAMES, file_name="second")
    assert (tmp_path / "second.perfetto-trace").exists()
    assert to_trace(profile_buf, NAMES).spans["block"].to_pylist() == [0, 0]
    set_export_trace_off()
    with ProfilerBuffer(max_num_profile_slots=1000, trace_file="silent", task_names=NAMES) as profile_buf:
        run(gpu, profile_buf)
    assert not (tmp_path / "silent.perfetto-trace").exists()


def test_disabled_profiling_leaves_no_instruction_behind(gpu: FakeGpu) -> None:
    buffer = alloc_profiler_buffer(100)
    run(gpu, buffer, enable=False)
    assert "%clock64" not in gpu.fired[-1].ptx
    with pytest.raises(WarplensError, match="ENABLE_PROFILING"):
        to_trace(buffer, NAMES)


def test_groups_of_a_block_have_tracks_of_their_own(gpu: FakeGpu) -> None:
    buffer = alloc_profiler_buffer(100)
    grouped[(2, 2)](buffer, GROUPS=3)
    rows = to_trace(buffer, ["a", "b", "c"]).spans.to_pylist()
    assert {(row["block"], row["warp"], row["region"]) for row in rows} == {
        (block, group, "abc"[group]) for block in range(4) for group in range(3)
    }


@pytest.mark.parametrize(("lines", "lost"), [(3, 3 * (80 - 16)), (2, 3 * 64), (0, 3 * 80)])
def test_a_small_buffer_loses_exactly_what_it_says(gpu: FakeGpu, lines: int, lost: int, capsys: Any) -> None:
    """120 tiles on 3 blocks are 80 records each; `lines` cache lines each are a header and 16 records a line."""
    buffer = alloc_profiler_buffer(100)
    guard = gpu.tensor(np.full(1 << 12, 7, np.int64))
    lost = 3 * (80 - max(lines - 1, 0) * 16)
    head = np.zeros(2, np.uint32)
    head[:] = gpu.space.read(buffer.address, np.uint32, 2)
    head[1] = 3 * lines if lines else 2
    gpu.space.write(buffer.address, head)
    run(gpu, buffer, tiles=120)
    end = buffer.address + 128 + 3 * lines * 128
    after = gpu.space.read(end, np.uint8, buffer.address + buffer.numel() * 8 - end)
    assert not after.any(), "nothing may be written past the lines the buffer says it has"
    assert (guard.numpy() == 7).all()
    trace = to_trace(buffer, NAMES)
    assert f"{lost} records were lost" in capsys.readouterr().err
    assert trace.meta.losses.records_kept == 3 * 80 - lost


def test_the_promised_slots_are_enough_for_any_grid(gpu: FakeGpu, capsys: Any) -> None:
    for blocks, tiles in ((1, 40), (40, 40), (7, 40)):
        buffer = alloc_profiler_buffer(blocks * 2 * -(-tiles // blocks))
        run(gpu, buffer, blocks=blocks, tiles=tiles)
        assert len(to_trace(buffer, NAMES)) == tiles
    assert capsys.readouterr().err == ""


def test_blocks_that_create_no_profiler_show_nothing_of_an_earlier_launch(gpu: FakeGpu) -> None:
    buffer = alloc_profiler_buffer(1000)
    run(gpu, buffer, blocks=8, tiles=64)
    run(gpu, buffer, blocks=2, tiles=2)
    assert to_trace(buffer, NAMES).spans["block"].to_pylist() == [0, 1]
