"""The benchmarks of placement and accuracy without a GPU: the interpreter runs their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from benchmarks import placement
from benchmarks.lib.gpu_programs import KERNELS
from tests.support.cuda_compilers import needs_nvrtc
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens import simulate
from warplens.decode import decode
from warplens.frontends.cuda.nvrtc import compile_cubin
from warplens.record.c_header import PATH
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace


class OneBlockPerSm(SimulatedDriver):
    """Blocks run at once, each on an SM with a clock of its own; the kernel's parameters are as many as were given."""

    sizes: tuple[int, ...] = ()

    def parameter_sizes(self, function: int) -> list[int]:
        return list(self.sizes)

    def launch(
        self, function: int, grid: Any, block: Any, arguments: Sequence[bytes], shared: int, stream: int
    ) -> None:
        text, name = self.functions[function]
        given = [int.from_bytes(a, "little") for a in arguments]
        clock = simulate.CycleClock(sms=8, blocks_per_sm=1)
        simulate.run(text, name, grid, block, given, memory=self.space, clock=clock)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> OneBlockPerSm:
    return in_place(monkeypatch, OneBlockPerSm())


def messages(late: np.ndarray, asymmetry: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sent and heard as a trace shows them that places block i late[i] too late, in the kernel's order of meetings."""
    rng = np.random.default_rng(seed)
    blocks, exchanges = len(late), 6
    sent, heard = np.full((2, blocks, blocks - 1, exchanges), np.nan)
    met = [0] * blocks
    for round_ in range(blocks):
        for a in range(blocks):
            b = (round_ - a) % blocks
            if a >= b:
                continue
            way = rng.uniform(130, 160)
            for number in range(exchanges):
                at = rng.uniform(0, 1e6)
                held_up = rng.exponential(40, 2) * (number != 3)
                skew = rng.uniform(-asymmetry, asymmetry)
                sent[a, met[a], number] = at + late[a]
                heard[b, met[b], number] = at + way + skew + held_up[0] + late[b] + 5000 * (number == 0)
                sent[b, met[b], number] = at + 400 + late[b]
                heard[a, met[a], number] = at + 400 + way - skew + held_up[1] + late[a]
            met[a] += 1
            met[b] += 1
    return sent, heard


@pytest.mark.parametrize("blocks", [7, 12, 132])
def test_exchanged_messages_tell_whose_moments_are_placed_late(blocks: int) -> None:
    late = np.random.default_rng(blocks).normal(0, 30, blocks)
    sent, heard = messages(late, 0.0, 1)
    assert not np.isnan(sent).any()
    found, closure = placement.exchanged(sent, heard)
    assert np.abs(found - (late - late.mean())).max() < 1e-6
    assert np.abs(closure).max() < 1e-6
    found, closure = placement.exchanged(*messages(late, 20.0, 2))
    assert np.abs(found - (late - late.mean())).max() < 20, "no pair says more than its own asymmetry"
    assert 5 < closure.std() < 20, "what pairs disagree by shows how far the exchange can be believed"


def traced(skew: Sequence[float], exchanges: int) -> Trace:
    """A launch of blocks that leave each barrier at one tick of the timer and then exchange messages, on three GPCs of
    eight SMs whose timers are ahead by `skew`: a clock per GPC, read to the cycle; the timer in steps of 32 ns."""
    rng = np.random.default_rng(5)
    blocks, rounds = 24, 5
    gpc = np.arange(blocks) // 8
    lead, rate = rng.integers(0, 3_400_000, 3) + np.arange(3) * 10**7, 1.98 - np.array([5e-4, 0, 1e-3])
    tracks = [TrackWriter(placement.records(rounds, blocks, exchanges), block=b, sm=b) for b in range(blocks)]

    def both(b: int, t: float) -> tuple[int, int]:
        return int(lead[gpc[b]] + rate[gpc[b]] * t), 10**15 + int((t + skew[gpc[b]]) // 32 * 32)

    def mark(b: int, region: int, t: float) -> None:
        tracks[b].record(Kind.INSTANT, region, both(b, t)[0])

    for b in range(blocks):
        tracks[b].start(*both(b, rng.uniform(0, 500)))
        for number in range(rounds):
            tick = 32.0 * 1000 * (number + 1)
            mark(b, 1, tick - skew[gpc[b]] + rng.uniform(0, 10))
            tracks[b].anchor(*both(b, tick + rng.uniform(200, 600)))
    now = 32.0 * 1000 * (rounds + 1)
    for round_ in range(blocks):
        for a in range(blocks):
            b = (round_ - a) % blocks
            if a >= b:
                continue
            for _ in range(exchanges):
                for one, other in ((a, b), (b, a)):
                    mark(one, 2, now)
                    mark(other, 3, now + 140)
                    now += 300
            for one in (a, b):
                tracks[one].anchor(*both(one, now + rng.uniform(0, 100)))
    for b in range(blocks):
        tracks[b].exit(*both(b, now + rng.uniform(200, 600)))
    names = {1: "past the barrier", 2: "sent", 3: "heard"}
    raw = np.concatenate([track.to_bytes() for track in tracks])
    capacity = placement.records(rounds, blocks, exchanges)
    launch = Launch("barrier", (blocks, 1, 1), (32, 1, 1), names, capacity, raw)
    return decode(Capture([launch], device=Device(name="model", sm_count=blocks, clock_mhz=1980)))


@pytest.mark.parametrize("skew", [(0.0, 0.0, 0.0), (0.0, 80.0, -40.0)])
def test_timers_that_disagree_are_found_by_messages_alone(skew: tuple[float, ...]) -> None:
    """A release by the timer lands together however wrong the timers are; the exchange tells."""
    answer = placement.result([traced(skew, 3)], [3])
    assert answer["clocks"] == 3
    assert answer["spread_ns"]["max"] < 32
    assert answer["launches within twice the stated p99"] == 1
    by = answer["exchanged"]
    apart = max(skew) - min(skew)
    assert by["late_ns"]["any two SMs"]["max"] == pytest.approx(apart, abs=16)
    assert by["spread_ns"]["max"] == pytest.approx(apart, abs=32)
    assert by["launches whose SMs are within twice the stated p99"] == (apart < 32)
    assert by["closure_ns"] < 4


@needs_nvrtc
@pytest.mark.parametrize("release", ["lines", "own", "equal paced", "timer"])
def test_every_block_passes_every_barrier_and_meets_every_other(gpu: OneBlockPerSm, release: str) -> None:
    blocks, rounds, exchanges = 4, 2, 2
    source = (KERNELS / "placement.cu").read_text()
    module = wlcu.compile(source, arch="sm_90", name="placement.cu", options=list(placement.RELEASES[release]))
    gpu.sizes = (8, 4, 4, 8)
    memory = gpu.allocate(placement.memory_bytes(blocks))
    gpu.clear(memory, placement.memory_bytes(blocks), 0)
    with wl.profile(records_per_warp=placement.records(rounds, blocks, exchanges)) as profile:
        module["barrier"].launch(blocks, 64, np.uint64(memory), np.int32(rounds), np.int32(exchanges))
    trace = profile.trace
    assert trace.meta.losses.clean
    moments = placement.Moments.of(trace, exchanges)
    assert moments.passed.shape == (blocks, rounds)
    assert moments.sent.shape == moments.heard.shape == (blocks, blocks - 1, exchanges)
    assert (np.diff(moments.passed, axis=1) > 20_000).all(), "it sleeps between rounds"
    answer = placement.result([trace], [exchanges])
    assert answer["clocks"] == blocks
    assert release in placement.table({release: answer})
    if release == "timer":
        # The interpreter's SMs read one and the same timer: what is left is the fit and the last poll.
        assert answer["spread_ns"]["max"] <= 2 * answer["stated_ns"]["max"]["max"]
        assert answer["launches within 150 ns"] == 1


@needs_nvrtc
@pytest.mark.parametrize("release", placement.RELEASES)
def test_every_release_compiles_for_the_gpu(release: str) -> None:
    source = (KERNELS / "placement.cu").read_text()
    options = [f"--include-path={PATH.parent}", *placement.RELEASES[release]]
    assert compile_cubin(source, "placement.cu", "sm_90a", options)


@needs_nvrtc
@pytest.mark.parametrize(("work", "amount"), [(0, 16), (1, 4), (2, 4), (3, 1000), (4, 2)])
def test_regions_of_known_length_and_their_samples(gpu: OneBlockPerSm, work: int, amount: int) -> None:
    repeats = 6
    options = [f"-DWORK={work}", f"-DAMOUNT={amount}", "-DEACH=8"]
    module = wlcu.compile((KERNELS / "accuracy.cu").read_text(), arch="sm_90", name="accuracy.cu", options=options)
    gpu.sizes = (8, 8, 4, 8)
    samples, ring = gpu.allocate(16 * repeats), gpu.allocate(8 * amount)
    slots = ring + 8 * ((np.arange(amount, dtype=np.uint64) + 1) % amount)
    gpu.space.write(ring, slots.view(np.uint8))
    with wl.profile(records_per_warp=400) as profile:
        module["accuracy"].launch(1, 32, np.uint64(samples), np.uint64(ring), np.int32(repeats))
    trace = profile.trace
    codes, names = trace.codes("region")
    raw = trace.numpy("dur_cycles")[(codes == names.index("work")) & trace.of_kind("span")]
    assert len(raw) == repeats
    once, twice = gpu.space.read(samples, np.uint64, 2 * repeats).astype(np.int64).reshape(2, -1)
    if work == 0:
        assert np.median(twice - once) == 4 * amount, "the interpreter's fma takes 4 cycles"
        assert np.median(raw) >= 4 * amount
    elif work in (1, 2):
        assert np.median(twice - once) > 20 * amount
    elif work == 3:
        inside = trace.numpy("value")[trace.of_kind("value")]
        assert (inside >= amount).all()
        assert (np.abs(raw - inside - once) <= 8).all(), "the sleep and the two reads around it are all there is"
