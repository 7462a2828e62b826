"""`wl.profile(stalls=True)` of a Triton kernel, from the sampled instruction to the region, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl
from tests.support.fake_cupti import FakeLibrary, use_fake_cupti
from tests.support.fake_gpu import FakeGpu, fake_gpu
from tests.support.sass_kernels import needs_tools
from tests.support.stepped_kernel import run, stepped
from warplens.analyse.region_counters import BY_ADDRESS, PC_SAMPLING, PLAIN_BY_LINE
from warplens.analyse.sampled_stalls import sampled_stalls
from warplens.sass.machine_code import MachineCode, verify_code


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiling takes most of the time, and every test compiles the same."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    monkeypatch.setenv("WARPLENS_VERIFY", "1")
    with fake_gpu(monkeypatch, stepped) as fake:
        yield fake


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return use_fake_cupti(monkeypatch)


def recorded(gpu: FakeGpu) -> MachineCode:
    """The machine code that a profile of the kernel runs."""
    with wl.profile() as prof:
        run(gpu)
    ((_, code),) = prof.run.codes.values()
    return code


@needs_tools
def test_samples_reach_their_region(gpu: FakeGpu, library: FakeLibrary, tmp_path: Path) -> None:
    code = recorded(gpu)
    assert code.cubin
    assert code.plain
    assert code.cubin != code.plain
    assert "Enable" not in library.calls
    with wl.profile(tmp_path / "t.warplens", stalls=True) as prof:
        run(gpu)
        assert library.enabled == {1}
        for start, end in verify_code(code)["load"].ranges:
            for address in range(start, end, 16):
                library.sample(code.cubin, code.symbol, address, long_scoreboard=5)
        library.sample(code.plain, code.symbol, 0, wait=1000)
    assert library.enabled == set()
    found = {one.region: one for one in prof.trace.stalls().regions}
    assert (found["load"].source, found["load"].basis) == (PC_SAMPLING, BY_ADDRESS)
    assert found["load"].share == 1.0
    assert found["load"].stall_shares == {"long_scoreboard": 1.0}
    assert found["all"].samples == found["load"].samples == found["load"].self_samples
    assert sampled_stalls(wl.load(tmp_path / "t.warplens")).regions == tuple(found.values())


@needs_tools
def test_launches_beyond_the_quota_count_by_line(gpu: FakeGpu, library: FakeLibrary) -> None:
    code = recorded(gpu)
    assert code.plain
    # Which lines belong to one region alone depends on the version of Triton.
    region, (file, first, _) = next(
        (one.region, one.source_lines[0]) for one in verify_code(code).regions if one.source_lines
    )
    library.lines[code.symbol, 64] = ("", file, first)
    with wl.profile(stalls=True, launches=1) as prof:
        for _ in range(3):
            run(gpu)
        library.sample(code.plain, code.symbol, 64, barrier=7)
    rows = {one.region: one for one in sampled_stalls(prof.trace).regions}
    assert (rows[region].basis, rows[region].samples) == (PLAIN_BY_LINE, 7)


@pytest.mark.parametrize("call", ["Enable", "GetData", "Disable", "GetCubinCrc"])
def test_a_failure_costs_neither_the_program_nor_its_records(
    gpu: FakeGpu, library: FakeLibrary, call: str, capfd: pytest.CaptureFixture[str]
) -> None:
    library.failing[call] = 999
    library.sample(b"x", "stepped", 0, wait=1)
    with wl.profile(stalls=True) as prof:
        source, target = run(gpu)
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    assert prof.trace.stats()["load"].count == 24
    said = [line for line in capfd.readouterr().err.splitlines() if "stalls" in line]
    assert len(said) == 1
    assert said[0].startswith("warplens: stalls: not sampled: cupti")
    assert said[0].removeprefix("warplens: stalls: ") in sampled_stalls(prof.trace).notes


def test_a_profile_inside_another_samples_its_own_launches(gpu: FakeGpu, library: FakeLibrary) -> None:
    outer = wl.profile(stalls=True)
    outer.whole_program = True
    with outer:
        run(gpu)
        library.sample(b"x", "stepped", 0, wait=1)
        with wl.profile(stalls=True) as inner:
            run(gpu)
            library.sample(b"x", "stepped", 0, wait=10)
        run(gpu)
        library.sample(b"x", "stepped", 0, wait=100)
    assert (inner.trace.meta.pc_samples["taken"], outer.trace.meta.pc_samples["taken"]) == (10, 101)
    assert inner.trace.meta.pc_samples["problems"] == outer.trace.meta.pc_samples["problems"] == ()


def test_nothing_is_sampled_unless_it_is_asked_for(
    gpu: FakeGpu, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wl.profile() as prof:
        run(gpu)
    assert (library.calls, prof.trace.meta.pc_samples) == ([], {})
    monkeypatch.setenv("WARPLENS", "0")
    with wl.profile(stalls=True):
        run(gpu)
    assert library.calls == []
