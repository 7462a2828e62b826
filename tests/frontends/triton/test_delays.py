"""Delays in Triton kernels, with marks in the source and with automatic ones: compiled for real, run by the
interpreter, whose clock is the kernel's time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import tests.support.plain_kernels as kernels  # noqa: E402
import warplens as wl  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.stepped_kernel import plain, run, stepped  # noqa: E402
from tests.support.triton_examples import assemble, compile_woven, jobs  # noqa: E402
from warplens.auto.rules import Auto  # noqa: E402
from warplens.calibrate import record_cost  # noqa: E402
from warplens.frontends.triton.launch_hook import woven_kernel  # noqa: E402
from warplens.frontends.triton.weaving_compiler import Recipe  # noqa: E402
from warplens.ptx.tree import parse  # noqa: E402
from warplens.record.layout import Kind  # noqa: E402
from warplens.weave.mark_sites import outline  # noqa: E402
from warplens.weave.weaver import weave  # noqa: E402
from warplens.weave.weaving import Weaving  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(record_cost, "constants", dict)
    with fake_gpu(monkeypatch, stepped, plain, kernels.add, timed=True) as fake:
        yield fake


def test_regions_of_the_source_are_delayed_one_at_a_time(gpu: FakeGpu) -> None:
    found = wl.sensitivity(lambda: run(gpu)[1].numpy(), kernels="stepped", rounds=3)
    assert {one.region: one.executions for one in found.regions} == {"all": 1, "load": 4, "scale it": 4}
    for one in found.regions:
        assert one.slope == pytest.approx(1.0, abs=0.1), "nothing hides it"
    assert found.results == "identical"
    twins = {launch.ptx for launch in gpu.fired if "$wl_spin" in launch.ptx}
    assert len(twins) == 3
    assert all(text.count("$wl_spin") == 2 for text in twins), "one probe in each, and no record"


def test_automatic_regions_are_delayed(gpu: FakeGpu) -> None:
    x, y = (gpu.tensor(np.arange(512, dtype=np.float32)) for _ in range(2))
    out = gpu.tensor(np.zeros(512, np.float32))

    def add() -> np.ndarray:
        kernels.add[(2,)](x, y, out, 512, 256)
        return out.numpy()

    # Long delays: the kernel is short, and events step by 32 ns.
    found = wl.sensitivity(add, auto="loads,stores", rounds=3, delays=[2000, 4000])
    kinds = {one.region.split()[0]: one for one in found.regions}
    assert set(kinds) == {"load", "store"}
    assert kinds["store"].slope == pytest.approx(1.0, abs=0.1)
    assert found.results == "identical"


def test_what_is_done_to_triton_is_undone(gpu: FakeGpu) -> None:
    wl.sensitivity(lambda: run(gpu)[1].numpy(), regions="load", rounds=3)
    run(gpu)
    assert "$wl_" not in gpu.fired[-1].ptx


@pytest.mark.parametrize("name", ["matmul", "attention", "specialised_matmul"])
def test_a_delay_does_not_harm_the_kernels_of_the_examples(name: str) -> None:
    """ptxas for Hopper: hardly more registers, no spill, and wgmma instructions still overlap."""
    job = next(one for one in jobs(90) if one.name == name)
    text = job.marked_ptx(90)
    before, module = assemble(text, 90), parse(text)
    sites = [site for function in module.functions for site in outline(function, module.files).sites]
    for region in {site.mark.name for site in sites if site.mark.kind is Kind.BEGIN}:
        after = assemble(weave(text, how=Weaving(delay=region)).text, 90)
        assert after.registers <= before.registers + 8, region
        assert after.spills <= before.spills, region
        assert set(after.warnings) <= set(before.warnings), region


@pytest.mark.parametrize("region", ["copy issue attention.py:30", "load q", "softmax"])
def test_marks_by_hand_and_automatic_ones_together(region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is also assembled without the automatic marks, where some regions do not exist."""
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    job = next(one for one in jobs(90) if one.name == "attention")
    made = compile_woven(job, 90, Recipe(Weaving(delay=region), auto=Auto.of("loads,copies,waits,barriers")))
    woven = woven_kernel(made.metadata)
    assert woven is not None
    assert (woven.store, dict(woven.regions)) == ("delay", {1: region})
