"""The drop-ins and the recording modes on a real GPU: the seeds' own kernels, every record, results bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)


import triton.language as tl  # noqa: E402

import warplens as wl  # noqa: E402
import warplens.compat.proton as proton  # noqa: E402
import warplens.triton as wlt  # noqa: E402
from tests.support.proton_kernel import SCOPES, add_kernel  # noqa: E402
from tests.support.sm_profiler_kernel import EVT_COMPUTE, EVT_MEMORY, EVT_SYNC, my_kernel  # noqa: E402
from tests.support.triton_dist_kernels import NAMES, copy_1d_tilewise_kernel, grouped  # noqa: E402
from tests.support.triton_gpu_cases import CASES, counts, fma_chain  # noqa: E402
from warplens.compat.sm_profiler import SmProfiler  # noqa: E402
from warplens.compat.triton_dist import (  # noqa: E402
    ProfilerBuffer,
    alloc_profiler_buffer,
    export_to_perfetto_trace,
    reset_profiler_buffer,
    to_trace,
)

pytestmark = pytest.mark.gpu


def in_milliseconds(trace: Any) -> bool:
    """Whether all spans lie within a time that a kernel of these tests can take: the clocks were fitted."""
    return 0 <= np.array(trace.spans["start_ns"]).max() < 100e6


def run_sm_profiler(profiler: SmProfiler, blocks: int, steps: int = 8) -> None:
    x = torch.randn(blocks * 128, device="cuda")
    y = torch.empty_like(x)
    my_kernel[(blocks,)](profiler.get_buffer(), x, y, steps, BLOCK=128)
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)


def test_the_sm_profiler_quick_start(tmp_path: Path, capsys: Any) -> None:
    profiler = SmProfiler(num_blocks=264, num_groups=1, max_events_per_group=100, enabled=True)
    for event, name in ((EVT_COMPUTE, "compute"), (EVT_MEMORY, "memory"), (EVT_SYNC, "sync")):
        profiler.register_event(event, name)
    run_sm_profiler(profiler, 264)
    profiler.export(tmp_path / "trace.json")
    profiler.print_stats()
    trace = profiler.trace()
    assert counts(trace) == {"compute": 264, "memory": 264 * 8, "sync": 264}
    assert trace.meta.losses.clean, trace.meta.losses
    assert len(set(trace.spans["sm"].to_pylist())) > 16
    assert in_milliseconds(trace)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    captured = capsys.readouterr()
    assert "memory" in captured.out
    assert captured.err == ""


def test_an_sm_profiler_that_is_too_small_counts_what_it_loses(capsys: Any) -> None:
    profiler = SmProfiler(num_blocks=100, num_groups=1, max_events_per_group=4)
    guard = torch.full((1 << 18,), 7, dtype=torch.int64, device="cuda")
    run_sm_profiler(profiler, 132, steps=10)
    losses = profiler.trace().meta.losses
    assert (guard == 7).all()
    assert losses.records_written == 100 * 23
    assert losses.records_lost == 100 * (23 - 8)
    assert f"{32 * 23} records were rejected" in capsys.readouterr().err


def run_copy(buffer: Any, blocks: int = 132, tiles: int = 1000) -> None:
    source = torch.randn(tiles * 1024, device="cuda")
    target = torch.empty_like(source)
    copy_1d_tilewise_kernel[(blocks,)](buffer, source, target, tiles, BLOCK=1024, ENABLE=True)
    assert torch.equal(source, target)


def test_the_triton_dist_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ProfilerBuffer(max_num_profile_slots=1000000, trace_file="copy", task_names=NAMES) as profile_buf:
        run_copy(profile_buf)
    assert (tmp_path / "copy.perfetto-trace").stat().st_size > 10_000
    trace = to_trace(profile_buf, NAMES)
    assert counts(trace) == {"perfect": 500, "non-perfect": 500}
    assert trace.meta.losses.clean, trace.meta.losses
    assert in_milliseconds(trace)
    profile_buf = alloc_profiler_buffer(max_num_profile_slots=1000)
    for blocks in (40, 8):
        reset_profiler_buffer(profile_buf)
        run_copy(profile_buf, blocks, tiles=64)
        export_to_perfetto_trace(profiler_buffer=profile_buf, task_names=NAMES, file_name="separate")
        assert len(to_trace(profile_buf, NAMES)) == 64


def test_triton_dist_groups_and_a_buffer_that_is_too_small(capsys: Any) -> None:
    buffer = alloc_profiler_buffer(100)
    grouped[(50,)](buffer, GROUPS=4)
    assert len(to_trace(buffer, ["a", "b", "c", "d"])) == 200
    guard = torch.full((1 << 18,), 7, dtype=torch.int64, device="cuda")
    buffer = alloc_profiler_buffer(16)
    run_copy(buffer, blocks=2, tiles=200_000)
    trace = to_trace(buffer, NAMES)
    losses = trace.meta.losses
    assert (guard == 7).all()
    assert losses.records_written == 400_000
    assert f"{losses.records_lost} records were lost" in capsys.readouterr().err
    assert losses.records_lost > 0


def run_proton(blocks: int = 64) -> None:
    x, y = (torch.randn(blocks * 1024, device="cuda") for _ in range(2))
    output = torch.empty_like(x)
    add_kernel[(blocks,)](x, y, output, x.numel(), BLOCK_SIZE=1024, num_warps=4)
    assert torch.equal(output, x + y)


@pytest.mark.parametrize(
    ("mode", "warps"),
    [
        (None, 4),
        ("default:optimizations=clock32,time_shift,sched_stores", 4),
        (proton.mode.Default(sampling_strategy="selective", sampling_options="0,2", optimizations="clock32"), 2),
        ("default:granularity=cta", 1),
        ("default:buffer_type=shared", 4),
        ("default:buffer_type=shared:buffer_size=4096", 4),
        ("default:buffer_type=global:buffer_size=4096", 4),
    ],
)
@pytest.mark.parametrize("data", ["trace", "tree"])
def test_the_proton_tutorial(mode: Any, warps: int, data: str, tmp_path: Path) -> None:
    proton.start(str(tmp_path / "vector-add"), backend="instrumentation", data=data, mode=mode)
    run_proton()
    trace = proton.finalize()
    assert counts(trace) == dict.fromkeys(SCOPES, 64 * warps)
    assert trace.meta.losses.clean, trace.meta.losses
    written = tmp_path / ("vector-add." + {"trace": "chrome_trace", "tree": "hatchet"}[data])
    assert json.loads(written.read_text())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "options",
    [
        {"clock": "64"},
        {"buffer": "shared"},
        {"buffer": "shared", "clock": "64"},
        {"buffer": "shared", "full": "ring"},
    ],
    ids=str,
)
def test_every_mode_leaves_results_alone(case: str, options: dict[str, str]) -> None:
    launch, expected = CASES[case]
    outputs = []
    profile = wl.profile(**options)
    for profiled in (False, True):
        torch.manual_seed(1)
        if profiled:
            with profile:
                outputs.append(launch())
        else:
            outputs.append(launch())
    torch.cuda.synchronize()
    assert torch.equal(*outputs)
    losses, found = profile.trace.meta.losses, counts(profile.trace)
    assert losses.records_kept + losses.records_lost == losses.records_written
    assert losses.empty_slots == losses.unknown_regions == losses.clock_backward == 0
    # The oldest record that a ring keeps may have lost its payload, which is stored before it.
    assert losses.torn_payloads <= (losses.tracks_full if "full" in options else 0)
    if "full" not in options:
        assert losses.records_lost == 0
        assert {name: found.get(name) for name in expected} == expected
    cost, extra = profile.trace.meta.launches[0].cost, profile.trace.meta.launches[0].extra
    flush = f", flush {cost['flush_cycles']:.0f} cycles" if "flush_cycles" in cost else ""
    print(f"{case} {options}: finalize {cost['finalize_ns'] / 1e3:.0f} us{flush}, {extra['shared_bytes']} B shared")


@pytest.mark.parametrize(
    "options", [{}, {"clock": "64"}, {"buffer": "shared"}, {"buffer": "shared", "full": "ring"}], ids=str
)
def test_what_64_dependent_fmas_read_in_every_mode(options: dict[str, str]) -> None:
    x = torch.randn(132 * 128, device="cuda")
    y = torch.empty_like(x)
    with wl.profile(**options) as profile:
        fma_chain[(132,)](x, y, 1000, 128, 64, num_warps=4)
    cycles = np.array(profile.trace.spans["dur_cycles"])[~np.array(profile.trace.spans["open"])]
    middle = float(np.median(cycles))
    print(f"{options}: {len(cycles)} spans, median {middle:.0f} cycles")
    if options.get("full") != "ring":
        assert len(cycles) == 132 * 4 * 1000
    assert 256 <= middle <= 300


@triton.jit
def sleeps(data, rounds):
    wlt.begin("long")
    for _ in range(rounds):
        tl.inline_asm_elementwise(
            "nanosleep.u32 1000000; mov.u32 $0, 0;", "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.store(data, rounds)
    wlt.end("long")


def test_a_region_longer_than_the_32_bit_clock() -> None:
    """nanosleep keeps one warp for longer than 32 bits last (2.2 s at 1.98 GHz)."""
    data = torch.zeros(1, dtype=torch.int32, device="cuda")
    with wl.profile(clock="64") as profile:
        sleeps[(1,)](data, 4000, num_warps=1)
    spans = profile.trace.spans
    print(f"{spans['dur_cycles'][0].as_py()} cycles, {spans['dur_ns'][0].as_py() / 1e9:.3f} s")
    launch = profile.trace.meta.launches[0]
    assert spans["dur_cycles"][0].as_py() == pytest.approx(launch.busy_cycles, rel=0.01)
    assert profile.trace.meta.losses.clock_ambiguous == 0
