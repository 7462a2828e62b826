"""Profiles of Triton kernels, from mark to trace, without a GPU: a fake driver runs the PTX in the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

import warplens as wl  # noqa: E402
import warplens.triton as wlt  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.paths import ROOT  # noqa: E402
from tests.support.stepped_kernel import plain, run, stepped  # noqa: E402
from warplens.errors import WarplensError  # noqa: E402
from warplens.session import Session  # noqa: E402
from warplens.simulate import cycle_clock as simulate_clock  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch, stepped, plain) as fake:
        yield fake


def rows(trace: Any) -> list[dict[str, Any]]:
    return trace.spans.to_pylist()


def test_a_kernel_leaves_every_record_and_the_same_results(gpu: FakeGpu) -> None:
    with wl.profile() as profile:
        source, target = run(gpu)
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    found = rows(profile.trace)
    counts = {}
    for row in found:
        key = (row["region"], row["kind"])
        counts[key] = counts.get(key, 0) + 1
    tracks = 3 * 2
    assert counts == {
        ("all", "span"): tracks,
        ("block", "value"): tracks,
        ("load", "span"): 4 * tracks,
        ("scale it", "span"): 4 * tracks,
        ("tick", "instant"): 4 * tracks,
        ("half", "value"): 4 * tracks,
    }
    assert {(row["block"], row["value"]) for row in found if row["region"] == "block"} == {(0, 0), (1, 1), (2, 2)}
    assert sorted({row["value"] for row in found if row["region"] == "half"}) == [0, 0.5, 1, 1.5]
    assert all(row["depth"] == 1 for row in found if row["region"] == "load")
    assert profile.trace.meta.losses.records_lost == 0


def test_outside_a_profile_a_mark_is_a_comment_and_the_caches_never_mix(gpu: FakeGpu) -> None:
    for profiled in (False, True, False, True):
        if profiled:
            with wl.profile() as profile:
                run(gpu)
            assert len(profile.trace)
        else:
            run(gpu)
        assert ("@woven" in gpu.fired[-1].ptx) is profiled
        assert bool(gpu.fired[-1].scratch) is profiled


def test_the_disk_cache_keeps_both_apart_across_processes(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        import pytest
        from tests.support import stepped_kernel
        from tests.support.fake_gpu import fake_gpu
        import warplens as wl
        with fake_gpu(pytest.MonkeyPatch()) as gpu:
            if sys.argv[1] == "on":
                with wl.profile() as profile:
                    stepped_kernel.run(gpu)
                assert len(profile.trace) == 108, len(profile.trace)
            else:
                stepped_kernel.run(gpu)
            assert ("@woven" in gpu.fired[-1].ptx) is (sys.argv[1] == "on")
        """
    )
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "shared")}
    for switch in ("off", "on", "off", "on"):
        done = subprocess.run(
            [sys.executable, "-c", program, switch],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]


def test_several_launches_kernels_and_streams_share_a_profile(gpu: FakeGpu) -> None:
    with wl.profile() as profile:
        for stream in (1, 2, 3):
            gpu.stream = stream
            run(gpu, blocks=stream)
        data = gpu.tensor(np.zeros(128, np.float32))
        plain[(1,)](data, data, BLOCK=128)
    assert [fired.stream for fired in gpu.fired[:3]] == [1, 2, 3]
    assert gpu.fired[-1].scratch == 0, "a kernel without marks needs no buffer"
    assert {(row["launch"], row["block"]) for row in rows(profile.trace)} == {
        (launch, block) for launch in range(3) for block in range(launch + 1)
    }


def test_every_skips_launches_and_kernels_picks_by_name(gpu: FakeGpu) -> None:
    with wl.profile(every=2) as profile:
        for _ in range(5):
            run(gpu, blocks=1)
    assert [bool(fired.scratch) for fired in gpu.fired] == [True, False, True, False, True]
    assert len({row["launch"] for row in rows(profile.trace)}) == 3
    with pytest.raises(WarplensError, match="kernels="), wl.profile(kernels="^other"):
        run(gpu)
    assert "@woven" not in gpu.fired[-1].ptx


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"warps": [1]}, {(block, 1) for block in range(3)}),
        ({"granularity": "block"}, {(block, 0) for block in range(3)}),
        ({"granularity": "warpgroup"}, {(block, 0) for block in range(3)}),
        ({"blocks": [0, 2]}, {(0, 0), (0, 1), (2, 0), (2, 1)}),
        ({"blocks": range(1, 9), "warps": [0]}, {(1, 0), (2, 0)}),
        ({"blocks": [1, 2, 9, 11], "warps": [1]}, {(1, 1), (2, 1)}),
        ({"blocks": 2, "warps": [0]}, {(0, 0), (1, 0)}),
        ({"blocks": slice(1, None), "warps": [0]}, {(1, 0), (2, 0)}),
    ],
)
def test_only_what_is_selected_leaves_tracks(
    gpu: FakeGpu, options: dict[str, Any], expected: set[tuple[int, int]]
) -> None:
    with wl.profile(**options) as profile:
        source, target = run(gpu)
    assert {(row["block"], row["warp"]) for row in rows(profile.trace)} == expected
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)


@triton.jit
def divides(data, n):
    with wlt.region("long"):
        wlt.value("n", n)
        tl.store(data, tl.load(data) // n)
    wlt.async_begin("copy", 3)
    wlt.async_end("copy", 3)


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_64_bit_clocks_measure_what_32_bits_cannot(gpu: FakeGpu, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(simulate_clock._COST, "div", 5 << 32)
    lengths = {}
    for bits in ("64", "32"):
        data = gpu.tensor(np.array([91], np.int32))
        with wl.profile(clock=bits, full=full) as profile:
            divides[(2,)](data, 7, num_warps=1)
        found = {(row["region"], row["value"]): row for row in rows(profile.trace)}
        assert set(found) == {("long", None), ("n", 7.0), ("copy", None)}
        lengths[bits] = found["long", None]["dur_cycles"]
        assert profile.trace.meta.losses.clock_ambiguous == (0 if bits == "64" else 2)
    assert 5 << 32 < lengths["64"] < (5 << 32) + 10000
    assert lengths["32"] < 10000
    divides.device_caches.clear()


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_64_bit_clocks_change_nothing_else(gpu: FakeGpu, full: str) -> None:
    seen = []
    for bits in ("32", "64"):
        with wl.profile(clock=bits, full=full, records_per_warp=256) as profile:
            source, target = run(gpu, steps=6)
        np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 5)
        names = ("launch", "block", "warp", "region", "kind", "depth", "parent", "value", "open")
        seen.append(sorted(tuple(str(row[name]) for name in names) for row in rows(profile.trace)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_a_full_track_loses_exactly_what_does_not_fit(gpu: FakeGpu, full: str) -> None:
    steps = 40
    with wl.profile(records_per_warp=32, full=full) as profile:
        run(gpu, steps=steps)
    losses = profile.trace.meta.losses
    assert losses.records_written == 6 * (4 + steps * 7), "slots: a value takes two"
    assert losses.records_kept + losses.records_lost == losses.records_written
    halves = [row["value"] for row in rows(profile.trace) if row["region"] == "half"]
    assert losses.records_lost > 0
    if full == "ring":
        assert max(halves) == (steps - 1) / 2
    else:
        assert min(halves) == 0
        assert max(halves) < 10


NAMES = ("launch", "block", "warp", "region", "kind", "depth", "value", "open")


@pytest.mark.parametrize("clock", ["32", "64"])
@pytest.mark.parametrize("granularity", ["warp", "block"])
def test_records_that_wait_in_shared_memory_all_arrive(gpu: FakeGpu, clock: str, granularity: str) -> None:
    """287 slots per warp (572 with 64-bit clocks) go through 32 in shared memory: they spill several times."""
    seen = []
    for options in ({}, {"buffer": "shared", "bytes_per_block": 2 * 32 * 8, "records_per_warp": None}):
        with wl.profile(clock=clock, granularity=granularity, **options) as profile:
            source, target = run(gpu, steps=40)
        np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 39)
        assert profile.trace.meta.losses.clean, profile.trace.meta.losses
        seen.append([tuple(str(row[name]) for name in NAMES) for row in rows(profile.trace)])
    assert "st.shared" in gpu.fired[-1].ptx
    assert seen[0] == seen[1]
    launch = profile.trace.meta.launches[0]
    assert launch.cost["flush_cycles"] > 0
    assert launch.extra["shared_bytes"] == 512


@triton.jit
def padded(steps, PAD: tl.constexpr):
    for _ in tl.static_range(PAD):
        wlt.instant("pad")
    for step in range(steps):
        wlt.value("half", step * 0.5)
        wlt.instant("tick")


@pytest.mark.parametrize("clock", ["32", "64"])
@pytest.mark.parametrize("pad", range(6))
def test_a_spilling_track_that_fills_up_loses_exactly_what_does_not_fit(gpu: FakeGpu, pad: int, clock: str) -> None:
    """The cut may fall between a value and its record: then the value's slot is lost as well."""
    with wl.profile(buffer="shared", records_per_warp=64, bytes_per_block=None, clock=clock) as profile:
        padded[(2,)](100, PAD=pad, num_warps=1)
    losses = profile.trace.meta.losses
    width = 1 if clock == "32" else 2
    assert losses.records_written == 2 * (pad * width + 100 * (3 * width))
    assert losses.records_kept + losses.records_lost == losses.records_written
    assert losses.empty_slots == losses.torn_payloads == losses.unknown_regions == 0
    capacity = profile.trace.meta.launches[0].extra["capacity"]
    assert 0 <= capacity - losses.records_kept // 2 <= 1
    values = [row["value"] for row in rows(profile.trace) if row["region"] == "half" and row["block"] == 0]
    assert values == [step / 2 for step in range(len(values))]
    assert len(values) >= (capacity - pad * width - 3) // (3 * width)
    padded.device_caches.clear()


@pytest.mark.parametrize("steps", [2, 40])
def test_a_ring_in_shared_memory_keeps_the_latest(gpu: FakeGpu, steps: int) -> None:
    seen = []
    for options in ({"buffer": "shared", "bytes_per_block": 2 * 64 * 8}, {"records_per_warp": 64}):
        with wl.profile(full="ring", **options) as profile:
            run(gpu, steps=steps)
        losses = profile.trace.meta.losses
        assert losses.records_kept == min(64, 4 + 7 * steps) * 6
        assert losses.records_written == (4 + 7 * steps) * 6
        seen.append([tuple(str(row[name]) for name in NAMES) for row in rows(profile.trace)])
    assert seen[0] == seen[1]


def test_shared_memory_that_is_not_there_is_refused(gpu: FakeGpu) -> None:
    with (
        pytest.raises(WarplensError, match="a track needs at least 256"),
        wl.profile(buffer="shared", bytes_per_block=256),
    ):
        run(gpu)
    with pytest.raises(WarplensError, match="bytes_per_block="):
        wl.profile(buffer="shared", full="ring", records_per_warp=64).__enter__()


def test_shared_memory_is_taken_only_where_occupancy_does_not_suffer() -> None:
    from warplens.frontends.triton.shared_memory import free_bytes

    for capability, per_sm in ((80, 164 << 10), (90, 228 << 10), (89, 100 << 10)):
        for threads in (32, 128, 256, 1024):
            for shared in (0, 1024, 30_000, 48 << 10, 90_000):
                extra = free_bytes(capability, shared, threads)
                most = min(2048 // threads, 32)

                def fit(used: int, most: int = most, per_sm: int = per_sm) -> int:
                    return min(most, per_sm // (used + 1024))

                if capability != 89:
                    assert fit(shared + extra) == fit(shared)


def test_a_graph_whose_replays_nobody_follows_runs_and_records_nothing(gpu: FakeGpu) -> None:
    with wl.profile() as profile:
        run(gpu)
        graph = gpu.driver.graphs.begin(gpu.stream)
        source, target = run(gpu)
        gpu.driver.graphs.end(graph)
        graph.replay()
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    assert gpu.fired[-1].scratch, "the address of a cell that holds 0"
    assert {row["launch"] for row in rows(profile.trace)} == {0}
    assert profile.seen == {"stepped": 1}


def test_buffers_come_home_before_they_fill_the_device(gpu: FakeGpu) -> None:
    gpu.budget = 3 << 20
    with wl.profile(records_per_warp=1 << 16) as profile:
        for _ in range(3):
            run(gpu, blocks=1)
        assert profile.buffers.engine().arena.held <= 3 << 20
        assert [launch.landed for launch, _ in profile.run._pending][:2] == [True, True]
    assert len({row["launch"] for row in rows(profile.trace)}) == 3


def test_recorded_launches_in_the_steady_state_are_not_decided_again(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[str] = []
    original = Session.launch
    monkeypatch.setattr(Session, "launch", lambda self, *given: decided.append("") or original(self, *given))
    with wl.profile(records_per_warp=64) as profile:
        results = [run(gpu, blocks=1) for _ in range(12)]
    assert len(decided) < 5
    assert profile.seen == {"stepped": 12}
    for source, target in results:
        np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    per_launch: dict[int, list[str]] = {}
    for row in rows(profile.trace):
        per_launch.setdefault(row["launch"], []).append(row["region"])
    assert len(per_launch) == 12
    assert all(regions == per_launch[0] for regions in per_launch.values())


def test_of_an_autotuner_only_the_launch_that_was_asked_for_is_recorded(gpu: FakeGpu) -> None:
    def bench(call: Any, quantiles: Any) -> list[float]:
        for _ in range(3):
            call()
        return [1.0] * 3

    configs = [triton.Config({"BLOCK": block}, num_warps=2) for block in (64, 128)]
    tuned = triton.autotune(configs, key=[], do_bench=bench)(plain)
    data = gpu.tensor(np.zeros(128, np.float32))
    marked = triton.autotune(configs, key=["steps"], do_bench=bench)(stepped)
    source = gpu.tensor(np.arange(128, dtype=np.float32))
    with wl.profile() as profile:
        tuned[(1,)](data, data)
        marked[(1,)](source, data, 2)
    assert [bool(fired.scratch) for fired in gpu.fired if fired.name == "stepped"] == [False] * 6 + [True]
    assert {row["launch"] for row in rows(profile.trace)} == {0}
    with wl.profile() as again:
        marked[(1,)](source, data, 2)
    assert len(again.trace) == len(profile.trace)


@triton.jit
def passed_on(source, target, arrived, BLOCK: tl.constexpr):
    """Each block writes its part, waits until all have, and adds what the next one wrote."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    offsets = tl.arange(0, BLOCK)
    with wlt.region("write"):
        tl.store(target + block * BLOCK + offsets, tl.load(source + block * BLOCK + offsets))
        tl.debug_barrier()
    with wlt.region("meet"):
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < blocks:
            wlt.instant("wait")
    with wlt.region("read"):
        following = (block + 1) % blocks
        x = tl.load(target + following * BLOCK + offsets, volatile=True)
    tl.store(target + (blocks + block) * BLOCK + offsets, x + 1)


def test_blocks_of_a_cooperative_launch_still_meet(gpu: FakeGpu) -> None:
    blocks, block = 3, 128
    values = np.arange(blocks * block, dtype=np.float32)
    for profiled in (True, False, True):
        target = gpu.tensor(np.zeros(2 * values.size, np.float32))
        arguments = gpu.tensor(values), target, gpu.tensor(np.zeros(1, np.int32))
        with wl.profile() if profiled else nullcontext() as profile:
            passed_on[(blocks,)](*arguments, BLOCK=block, num_warps=2, launch_cooperative_grid=True)
        np.testing.assert_array_equal(target.numpy()[values.size :], np.roll(values, -block) + 1)
        fired = gpu.fired[-1]
        assert fired.cooperative, "a plain launch may never bring all blocks together"
        assert ("@woven" in fired.ptx, bool(fired.scratch)) == (profiled, profiled)
        if profiled:
            found = [(row["region"], row["block"], row["warp"]) for row in rows(profile.trace) if row["kind"] == "span"]
            parts = ("write", "meet", "read")
            assert sorted(found) == sorted((name, b, w) for name in parts for b in range(blocks) for w in range(2))
    passed_on.device_caches.clear()


def test_heuristics_choose_the_same_values_and_every_launch_is_recorded(gpu: FakeGpu) -> None:
    chosen = []

    def block_of(arguments: dict[str, Any]) -> int:
        chosen.append(64 * arguments["steps"])
        return chosen[-1]

    guided = triton.heuristics({"BLOCK": block_of})(stepped)
    for profiled in (True, False, True):
        for steps in (1, 2):
            source = gpu.tensor(np.arange(128, dtype=np.float32))
            target = gpu.tensor(np.zeros(128, np.float32))
            with wl.profile() if profiled else nullcontext() as profile:
                guided[lambda meta: (128 // meta["BLOCK"],)](source, target, steps, num_warps=2)
            np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + steps - 1)
            fired = gpu.fired[-1]
            assert (chosen[-1], fired.grid) == (64 * steps, (2 // steps, 1, 1))
            assert ("@woven" in fired.ptx, bool(fired.scratch)) == (profiled, profiled)
            if profiled:
                loads = [(row["block"], row["warp"]) for row in rows(profile.trace) if row["region"] == "load"]
                assert sorted(loads) == sorted(
                    (b, w) for b in range(2 // steps) for w in range(2) for _ in range(steps)
                )


def test_store_now_is_for_kernels_that_may_die(gpu: FakeGpu) -> None:
    with wl.profile(store="now") as profile:
        run(gpu)
    assert '"stores":{"stepped":"now"}' in gpu.fired[-1].ptx
    assert profile.trace.meta.losses.records_lost == 0
    with pytest.raises(WarplensError, match="allowed are 'auto' and 'now'"):
        wl.profile(store="later")


def test_a_front_end_may_join_a_profile_that_runs(gpu: FakeGpu) -> None:
    ended = []
    with wl.profile() as profile:
        profile.join(lambda joined: lambda: ended.append(joined))
        profile.join(lambda joined: None)
        assert not ended
        run(gpu)
    assert ended == [profile]


def test_another_profiler_is_refused_by_name(gpu: FakeGpu) -> None:
    from triton.runtime import _allocation

    _allocation.set_profile_allocator(lambda size, alignment, stream: None)
    try:
        with pytest.raises(WarplensError, match="another profiler is active"), wl.profile():
            pass
    finally:
        _allocation.set_profile_allocator(None)
    assert triton.knobs.runtime.add_stages_inspection_hook is None


@triton.jit
def anchored(target, steps):
    for step in range(steps):
        wlt.anchor()
        with wlt.region("work"):
            tl.store(target + tl.program_id(0), step)


def test_anchors_in_mid_kernel_reach_the_clock_fit(gpu: FakeGpu) -> None:
    target = gpu.tensor(np.zeros(4, np.int32))
    with wl.profile() as profile:
        anchored[(2,)](target, 5)
    assert profile.trace.meta.clock.anchors == 2 * 4 * (2 + 5)
    assert [row["region"] for row in rows(profile.trace)] == ["work"] * (2 * 4 * 5)


def test_a_block_of_values_is_refused_where_it_stands(gpu: FakeGpu) -> None:
    @triton.jit
    def wrong(source, BLOCK: tl.constexpr):
        wlt.value("x", tl.load(source + tl.arange(0, BLOCK)))

    with pytest.raises(triton.CompilationError, match="reduce it to a scalar"):
        wrong[(1,)](gpu.tensor(np.zeros(128, np.float32)), BLOCK=128)


def test_switched_off_by_the_environment(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS", "0")
    with wl.profile() as profile:
        run(gpu)
    assert "@woven" not in gpu.fired[-1].ptx
    assert len(profile.trace) == 0


def test_a_saved_trace_says_what_the_machine_code_holds_in_each_region(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPLENS_VERIFY", "1")
    path = tmp_path / "stepped.warplens"
    with wl.profile(path):
        run(gpu)
    (found,) = wl.load(path).verify().values()
    assert (found.kernel, found.problem, found.source) == ("stepped", "", "the machine code that ran")
    assert found["load"].counts == {"load.global": 1}
    # The compiler joined the product with the sum after the region, so nothing is left in it.
    assert found["scale it"].flag == "no instruction of the kernel is between its marks"
    with wl.profile(tmp_path / "off.warplens", verify=False):
        run(gpu)
    assert wl.load(tmp_path / "off.warplens").verify() == {}
