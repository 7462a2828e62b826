"""Woven Triton kernels on a real GPU: results bit for bit, every record, streams, many launches, exact durations."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

import triton.language as tl  # noqa: E402

import warplens as wl  # noqa: E402
import warplens.triton as wlt  # noqa: E402

pytestmark = pytest.mark.gpu
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "triton"))

import vector_add  # noqa: E402

from tests.support.triton_gpu_cases import CASES, counts, fma_chain  # noqa: E402


@pytest.mark.parametrize("full", ["stop", "ring"])
@pytest.mark.parametrize("case", CASES)
def test_results_are_bit_identical_and_nothing_is_lost(case: str, full: str) -> None:
    launch, expected = CASES[case]
    outputs = []
    for profiled in (False, True, False):
        torch.manual_seed(1)
        if profiled:
            with wl.profile(full=full) as profile:
                outputs.append(launch())
        else:
            outputs.append(launch())
    torch.cuda.synchronize()
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    found = counts(profile.trace)
    assert {name: found.get(name) for name in expected} == expected
    losses = profile.trace.meta.losses
    assert losses.records_lost == 0
    assert losses.records_kept == losses.records_written


@pytest.mark.parametrize("length", [64, 256])
def test_dependent_fmas_read_4_cycles_each(length: int) -> None:
    x = torch.randn(132 * 128, device="cuda")
    plain, y = torch.empty_like(x), torch.empty_like(x)
    fma_chain[(132,)](x, plain, 500, 128, length, num_warps=4)
    with wl.profile(records_per_warp=1100) as profile:
        fma_chain[(132,)](x, y, 500, 128, length, num_warps=4)
    assert torch.equal(plain, y)
    cycles = np.array(profile.trace.spans["dur_cycles"])
    assert len(cycles) == 132 * 4 * 500
    low, middle, high = np.percentile(cycles, [1, 50, 99])
    assert 4 * length <= middle <= 4 * length + 3, (low, middle, high)


def test_a_thousand_launches_in_one_profile() -> None:
    x, y = (torch.randn(4096, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    with wl.profile(records_per_warp=64) as profile:
        for _ in range(1000):
            vector_add.vector_add[(4,)](x, y, out, 4096, BLOCK=1024)
    assert counts(profile.trace)["add"] == 1000 * 4 * 4
    assert len(profile.trace.spans["launch"].unique()) == 1000


def test_two_streams_at_once() -> None:
    x = torch.randn(64 * 128, device="cuda")
    outputs = [torch.empty_like(x) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    with wl.profile(records_per_warp=2100) as profile:
        for stream, output in zip(streams, outputs, strict=True):
            with torch.cuda.stream(stream):
                fma_chain[(64,)](x, output, 1000, 128, 64, num_warps=4)
    assert torch.equal(*outputs)
    assert counts(profile.trace) == {"work": 2 * 64 * 4 * 1000}


def test_a_track_that_is_too_small_loses_exactly_the_rest_and_harms_nobody() -> None:
    x = torch.randn(8 * 128, device="cuda")
    guard = torch.zeros(1 << 20, device="cuda")
    y = torch.empty_like(x)
    with wl.profile(records_per_warp=100) as profile:
        fma_chain[(8,)](x, y, 1000, 128, 64, num_warps=4)
    losses = profile.trace.meta.losses
    assert losses.records_written == 8 * 4 * 2000
    assert losses.records_kept + losses.records_lost == losses.records_written
    assert losses.records_kept >= 8 * 4 * 100
    assert not guard.any()


def test_autotuned_and_heuristic_kernels() -> None:
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 8))]

    @triton.autotune(configs, key=["n"])
    @triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
    @triton.jit
    def double(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("work"):
            v = tl.load(x + offsets) if EVEN else tl.load(x + offsets, mask=offsets < n)
            tl.store(x + offsets, v * 1.0, mask=offsets < n)

    x = torch.randn(1 << 16, device="cuda")
    with wl.profile(records_per_warp=16) as profile:
        double[lambda given: (triton.cdiv(x.numel(), given["BLOCK"]),)](x, x.numel())
    assert counts(profile.trace)["work"] in (64 * 8, 128 * 4), "one launch: those of the autotuner are left out"


def test_a_graph_runs_after_its_profile_and_only_replays_inside_are_recorded() -> None:
    x, y = (torch.randn(4096, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    with wl.profile(records_per_warp=64) as profile:
        vector_add.vector_add[(4,)](x, y, out, 4096, BLOCK=1024)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            vector_add.vector_add[(4,)](x, y, out, 4096, BLOCK=1024)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)
    assert len(profile.trace.spans["launch"].unique()) == 1
