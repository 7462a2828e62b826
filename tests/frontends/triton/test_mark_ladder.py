"""A kernel never goes without a trace, and the search for its marks is made once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import tests.support.plain_kernels as kernels  # noqa: E402
import warplens as wl  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.plain_jobs import Job, plain_jobs  # noqa: E402
from tests.support.triton_examples import compile_woven  # noqa: E402
from warplens.auto.rules import Auto  # noqa: E402
from warplens.driver.limits import find_limits  # noqa: E402
from warplens.frontends.triton import idle_cores, mark_ladder  # noqa: E402
from warplens.frontends.triton.block_shape import BlockShape  # noqa: E402
from warplens.frontends.triton.mark_ladder import MarkLadder  # noqa: E402
from warplens.frontends.triton.stages import Compilation  # noqa: E402
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler  # noqa: E402
from warplens.launch.thinning import Thinning  # noqa: E402
from warplens.weave.fit.harm import Guard, Harm  # noqa: E402
from warplens.weave.fit.ptxas_output import read_cubin  # noqa: E402
from warplens.weave.weaving import Selection, Weaving  # noqa: E402

CAPABILITY = 90


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    monkeypatch.setattr(mark_ladder, "idle_cores", lambda: 1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    caches = kernels.copy_2d.device_caches
    monkeypatch.setattr(kernels.copy_2d, "device_caches", type(caches)(caches.default_factory))
    with fake_gpu(monkeypatch, capability=CAPABILITY) as gpu:
        yield gpu


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever ptxas is run on, from here on."""
    texts: list[str] = []
    run = subprocess.run

    def counted(command: Any, *arguments: Any, **options: Any) -> Any:
        path = next((word for word in command if str(word).endswith(".ptx")), None)
        if path is not None:
            texts.append(Path(path).read_text())
        return run(command, *arguments, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return texts


def compiled(job: Job, how: Weaving | None = None, plain: bytes | None = None, **recipe: Any) -> Any:
    return compile_woven(job, CAPABILITY, Recipe(how or Weaving(), **recipe), plain)


def layer_norm() -> Job:
    return next(job for job in plain_jobs() if job.name == "layer_norm")


def copy(gpu: FakeGpu) -> None:
    values = np.arange(100 * 90, dtype=np.float32).reshape(100, 90)
    source, target = gpu.tensor(values), gpu.tensor(np.zeros_like(values))
    kernels.copy_2d[(2, 2)](source, target, 100, 90, 90, 1, 90, 1, 64, 64, num_warps=8)
    assert np.array_equal(target.numpy(), values)


def test_a_plain_copy_keeps_its_blocks_and_gets_a_trace(gpu: FakeGpu) -> None:
    """Its addresses fill the registers that five blocks per SM leave; with marks as asked an SM would hold four."""
    with wl.profile(auto=True) as profile:
        copy(gpu)
    (info,) = profile.trace.meta.launches
    assert info.tracks == 4 * 8
    assert len(profile.trace) >= 4 * 8, "every warp is in the trace"
    assert {row["block"] for row in profile.trace.spans.to_pylist()} == {0, 1, 2, 3}
    assert profile.trace.meta.losses.records_lost == 0
    shape = BlockShape(256, 0, find_limits("90"))
    (kernel,) = kernels.copy_2d.device_caches[0][0].values()
    plain = read_cubin(kernel.asm["cubin"])
    assert plain is not None
    assert shape.blocks(info.extra["registers"]) >= shape.blocks(plain.registers)
    assert info.extra["spills"] == 0


def test_the_search_for_a_kernels_marks_is_made_once(assembled: list[str]) -> None:
    """A second compilation with another selection of blocks assembles the kernel and nothing else."""
    first = compiled(layer_norm(), auto=Auto.of(True))
    searched = len(assembled)
    assert searched > 2
    again = compiled(layer_norm(), Weaving(select=Selection(warps=(0,))), auto=Auto.of(True))
    assert len(assembled) == searched + 1
    assert again.metadata.warplens["regions"] == first.metadata.warplens["regions"]
    assert again.metadata.warplens_remarks == first.metadata.warplens_remarks
    other = compiled(layer_norm(), auto=Auto.of("stores"))
    assert len(assembled) > searched + 1, "a verdict is about one request"
    assert other.metadata.warplens["regions"] != first.metadata.warplens["regions"]


@pytest.mark.parametrize("leaves_out", [Thinning(31, flat=True), Thinning(31, frozenset({"barrier"}))])
def test_what_the_overhead_budget_leaves_out_needs_no_new_search(assembled: list[str], leaves_out: Thinning) -> None:
    first = compiled(layer_norm(), auto=Auto.of(True))
    searched = len(assembled)
    assert searched > 2
    again = compiled(layer_norm(), leaves_out.of(Weaving()), auto=Auto.of(True))
    assert len(assembled) == searched + 1
    assert set(again.metadata.warplens["regions"].values()) <= set(first.metadata.warplens["regions"].values())
    assert again.metadata.warplens["regions"]
    assert again.metadata.warplens_remarks == first.metadata.warplens_remarks


def test_the_lives_of_warps_alone_are_woven_at_once(assembled: list[str]) -> None:
    made = compiled(layer_norm(), Thinning(31, flat=True, lives=True).of(Weaving()), auto=Auto.of(True))
    assert not made.metadata.warplens["regions"]
    assert not made.metadata.warplens_remarks["notes"], "the budget says why"
    assert len(assembled) <= 3, "at most twice, and plain"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever TTGIR is compiled to PTX, from here on."""
    texts: list[str] = []
    lower = Compilation.lower

    def counted(stages: Compilation, text: str, *rest: Any) -> tuple[str, str]:
        texts.append(text)
        return lower(stages, text, *rest)

    monkeypatch.setattr(Compilation, "lower", counted)
    return texts


def test_rungs_that_leave_nothing_out_of_a_kernel_are_not_compiled(
    assembled: list[str], lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This kernel has no loop, so that a rung without the counters of loops is the rung before."""
    monkeypatch.setattr(mark_ladder, "Guard", Refusing)
    add = next(job for job in plain_jobs() if job.name == "add")
    compiled(add, auto=Auto(classes=("loads", "loops", "stores")))
    assert len(lowered) == len(set(lowered)) == 3, "with loads and stores, with stores, and plain"
    assert len(assembled) == len(set(assembled))


class Refusing(Guard):
    """Finds harm in every kernel."""

    def harm(self, woven: Any) -> Harm:
        return Harm("it is refused", rank=(1,))


@pytest.mark.parametrize(
    ("spills", "rungs"),
    [
        ((500, 0, 300), ["all", "reduce", "coarse"]),
        ((500, 0, 0), ["all", "reduce", "stores and reduce"]),
        ((500, 300, 0), ["all", "reduce", "stores and reduce"]),
        ((500, 300, 20), ["all", "reduce", "stores and reduce", "coarse"]),
        ((100, 300, 300), ["all", "stores and reduce", "reduce", "coarse"]),
    ],
)
def test_a_kernel_far_from_fitting_is_tried_with_fewest_classes_next(
    spills: tuple[int, int, int], rungs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rungs between cost a compilation each: they are left out if the one below them spills as well."""
    names = {(): "all", ("loads",): "stores and reduce", ("loads", "stores"): "reduce"}
    said = dict(zip(names.values(), spills, strict=True))
    tried: list[str] = []
    search = MarkLadder._search

    def counted(ladder: MarkLadder, rung: Any, marked: Any, only: Any = None) -> Any:
        tried.append("coarse" if rung.fixed else names[rung.left_out])
        made = search(ladder, rung, marked, only)
        taken = replace(made.resources, registers=1, spills=said.get(tried[-1], 0))
        harm = Harm("it spills", rank=(1,)) if taken.spills else None
        return replace(made, resources=taken, harm=harm)

    monkeypatch.setattr(MarkLadder, "_search", counted)
    kernel = compiled(layer_norm(), auto=Auto(classes=("loads", "stores", "reduce")))
    assert tried == rungs
    (note,) = kernel.metadata.warplens_remarks["notes"]
    assert note.endswith("it spills")


def test_coarse_rungs_mark_the_ptx_that_triton_has_made_before(
    lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = layer_norm().compile(CAPABILITY)
    monkeypatch.setattr(mark_ladder, "Guard", Refusing)
    compiler = WeavingCompiler(Recipe(Weaving(), auto=Auto(classes=("stores",))))
    undo = compiler.install()
    try:
        twin = compiler.twin(plain)
    finally:
        undo()
    assert len(lowered) == 1, "the rung with stores, and none for those that mark the plain PTX"
    (note, *_) = twin.metadata.warplens_remarks["notes"]
    assert note.startswith("only the lifetime of each warp is recorded")
    assert twin.metadata.shared == plain.metadata.shared
    assert twin.metadata.num_warps == plain.metadata.num_warps


def test_a_verdict_that_cannot_be_read_is_searched_for_again(tmp_path: Path) -> None:
    first = compiled(layer_norm(), auto=Auto.of(True))
    (file,) = (tmp_path / "cache").rglob("warplens-verdict.json")
    assert json.loads(file.read_text())["rung"] == 1
    for text in ("{", "{}", '{"rung": 99, "weaving": "light", "registers": 0, "problem": "", "plain": null}'):
        file.write_text(text)
        again = compiled(layer_norm(), auto=Auto.of(True))
        assert again.asm["ptx"] == first.asm["ptx"]


def test_a_plain_kernel_whose_machine_code_is_known_is_not_assembled_again(assembled: list[str]) -> None:
    plain = layer_norm().compile(CAPABILITY)
    del assembled[:]
    compiled(layer_norm(), plain=plain.asm["cubin"], auto=Auto.of(True))
    assert assembled
    assert plain.asm["ptx"] not in assembled


def test_the_search_is_made_once_for_launches_of_a_profile(gpu: FakeGpu, assembled: list[str]) -> None:
    """Triton puts the recipe of a woven twin into its metadata, which must not make its verdict another one."""
    for warps in (None, [0]):
        del assembled[:]
        with wl.profile(auto=True, warps=warps) as profile:
            copy(gpu)
        assert len(profile.trace)
    assert sum("@woven" in text for text in assembled) == 1


@pytest.mark.parametrize("broken", ["mark_ttgir", "search"])
def test_a_bug_in_the_rules_or_the_weaver_leaves_a_kernel_that_runs(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(mark_ladder, broken, fail)
    kernel = compiled(layer_norm(), auto=Auto.of(True))
    (note,) = kernel.metadata.warplens_remarks["notes"]
    reason = "the weaver failed: ZeroDivisionError('a bug')"
    if broken == "search":
        assert note == f"runs unmarked: {reason}"
        assert not hasattr(kernel.metadata, "warplens")
    else:
        assert note == f"only its body and its outermost loops are marked: {reason}"


@pytest.mark.parametrize(("busy", "expected"), [(0.0, 4), (6.0, 3), (8.0, 1), (50.0, 1)])
def test_assemblers_run_side_by_side_where_cores_are_idle(
    busy: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_cores.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(idle_cores.os, "getloadavg", lambda: (busy, 0.0, 0.0))
    assert idle_cores.idle_cores() == expected


def test_idle_cores_change_nothing_but_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = compiled(layer_norm(), auto=Auto.of(True))
    monkeypatch.setattr(mark_ladder, "idle_cores", lambda: 3)
    together = compiled(layer_norm(), auto=Auto.of(True), dump_ir=None, least_occupancy=0.999)
    assert together.asm["ptx"] == alone.asm["ptx"]
    assert together.metadata.warplens_remarks == alone.metadata.warplens_remarks


def test_a_kernel_in_which_no_rule_finds_anything_has_the_lives_of_its_warps() -> None:
    job = next(job for job in plain_jobs() if job.name == "add")
    kernel = compiled(job, auto=Auto.of("mma"))
    (note,) = kernel.metadata.warplens_remarks["notes"]
    assert note == "only its body is marked: no rule finds anything to mark in it"
    lines = Auto.of(None, {"elsewhere": "other.py:1-2"})
    assert not hasattr(compiled(job, auto=lines).metadata, "warplens"), "its lines were not asked for"
