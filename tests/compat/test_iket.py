"""The drop-in for IKET: a program written for it, with nothing but its import changed, compiled and run."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.attached import attached
from tests.support.cute_gpu import compile_cute

# isort: split
from cutlass import cute

import warplens as wl
from tests.support import cute_runtime
from tests.support.cute_auto_kernels import pointer
from tests.support.cute_runtime import Runtime
from tests.support.iket_program import STEPS, N, check_trace, expected, load
from warplens.errors import UsageError, WarplensError
from warplens.frontends import registry
from warplens.frontends.cute.ptx_keeper import keep_marked_ptx
from warplens.frontends.cute.requirement import require_cute


@pytest.fixture(name="iket", autouse=True)
def _iket() -> Iterator[Any]:
    """The module, with what its import does undone after the test."""
    with attached():
        iket = importlib.import_module("warplens.compat.iket")
        registry.attach("cutlass.cutlass_dsl")
        undo = keep_marked_ptx()
        yield iket
        undo()


@pytest.fixture(name="cuda")
def _cuda(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return cute_runtime.install(monkeypatch)


def data(cuda: Runtime) -> tuple[int, tuple[object, int]]:
    address = cuda.gpu.space.alloc(np.arange(N, dtype=np.float32))
    return address, (pointer(address), STEPS)


@pytest.mark.parametrize("before", [True, False], ids=["compiled before the profile", "inside"])
def test_a_program_written_for_iket_is_recorded(cuda: Runtime, tmp_path: Path, before: bool) -> None:
    program = load(tmp_path)
    y, arguments = data(cuda)
    cuda.know(compile_cute(program.run, *arguments))
    compiled = cute.compile(program.run, *arguments)
    with wl.profile(records_per_warp=256) as profile:
        compiled = compiled if before else cute.compile(program.run, *arguments)
        compiled(*arguments)
    assert [woven for _, woven, _ in cuda.gpu.fired] == [True]
    assert (cuda.gpu.space.read(y, np.float32, N) == expected(np.arange(N))).all()
    check_trace(profile.trace)
    assert not profile.notes
    where = profile.trace.meta.locations["even"]
    assert where.startswith(program.__file__), "marks are at the lines of the program"


def test_marks_have_no_instruction_outside_a_profile(cuda: Runtime, tmp_path: Path) -> None:
    program = load(tmp_path)
    y, arguments = data(cuda)
    marked = cuda.know(compile_cute(program.run, *arguments))
    cute.compile(program.run, *arguments)(*arguments)
    assert [woven for _, woven, _ in cuda.gpu.fired] == [False]
    assert (cuda.gpu.space.read(y, np.float32, N) == expected(np.arange(N))).all()
    assert "clock" not in marked.__ptx__
    assert "pmevent" not in marked.__ptx__


def test_automatic_marks_stand_beside_its_own(cuda: Runtime, tmp_path: Path) -> None:
    program = load(tmp_path)
    _, arguments = data(cuda)
    cuda.know(compile_cute(program.run, *arguments))
    with wl.profile(auto="stores", records_per_warp=512) as profile:
        cute.compile(program.run, *arguments)(*arguments)
    regions = {row["region"].split()[0] for row in profile.trace.spans.to_pylist()}
    assert {"K_Tile", "even", "tail", "store"} <= regions


@pytest.mark.parametrize(("auto", "said"), [(None, ""), ("loads", "only its own marks are recorded: ")])
def test_marks_of_the_program_are_recorded_though_they_spill(
    cuda: Runtime, tmp_path: Path, auto: str | None, said: str
) -> None:
    program = load(tmp_path)
    _, arguments = data(cuda)
    cuda.know(compile_cute(program.run, *arguments))
    cuda.gpu.local[True] = cuda.gpu.local[False] + 16
    with wl.profile(auto=auto, records_per_warp=256) as profile:
        cute.compile(program.run, *arguments)(*arguments)
    check_trace(profile.trace)
    assert profile.notes["tiles"] == [f"{said}with marks it spills 16 more bytes of registers"]


def test_marks_in_host_code_do_nothing(tmp_path: Path) -> None:
    push = '    iket.range_push("host")\n    tiles(y, n)'
    text = compile_cute(load(tmp_path, ("    tiles(y, n)", push)).run, pointer(256), STEPS).__ptx__
    assert "@iket push host" not in text


def test_switched_off_it_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPLENS", "0")
    text = compile_cute(load(tmp_path).run, pointer(256), STEPS).__ptx__
    assert "@warplens" not in text
    assert "@iket" not in text


def test_payloads_may_be_values_of_the_compiler_and_pointers(cuda: Runtime, tmp_path: Path) -> None:
    changed = ('iket.mark("half", Float32(n) * 0.5)', 'iket.mark("raw", n.ir_value())\n    iket.mark("y", y)')
    program = load(tmp_path, changed)
    address, arguments = data(cuda)
    cuda.know(compile_cute(program.run, *arguments))
    with wl.profile() as profile:
        cute.compile(program.run, *arguments)(*arguments)
    found = {row["region"]: row["value"] for row in profile.trace.spans.to_pylist() if row["kind"] == "value"}
    assert (found["raw"], found["y"]) == (STEPS, address)


@pytest.mark.parametrize("steps", [2, STEPS])
def test_a_pop_ends_what_was_pushed_last_whatever_the_path(cuda: Runtime, tmp_path: Path, steps: int) -> None:
    program = load(
        tmp_path,
        ('iket.mark("start")', 'if n > 3:\n        iket.range_push("guarded")'),
        (
            'iket.range_push("step 100 %", k)',
            'if k == 0:\n            iket.range_push("first")\n        else:\n            iket.range_push("later")',
        ),
        ("    tail =", "    if n > 3:\n        iket.range_pop()\n    tail ="),
    )
    _, (y, _) = data(cuda)
    cuda.know(compile_cute(program.run, y, steps))
    with wl.profile(records_per_warp=256) as profile:
        cute.compile(program.run, y, steps)(y, steps)
    assert [woven for _, woven, _ in cuda.gpu.fired] == [True]
    rows = profile.trace.select(kernel="tiles", block=1, warp=1).spans.to_pylist()
    spans = [(row["region"], row["depth"]) for row in rows if row["kind"] == "span"]
    outside = [("guarded", 0)] if steps > 3 else []
    inside = [
        [("K_Tile", 0), ("later" if k else "first", 1), *([("even", 2)] if k % 2 == 0 else [])] for k in range(steps)
    ]
    deeper = len(outside)
    assert spans == [*outside, *((name, depth + deeper) for step in inside for name, depth in step), ("tail", 0)]
    losses = profile.trace.meta.losses
    assert (losses.open_spans, losses.orphan_ends, losses.mismatched_ends) == (0, 0, 0)


def test_mistakes_are_named(iket: Any) -> None:
    with pytest.raises(UsageError, match="the name must be a string"):
        iket.mark(3)
    with pytest.raises(UsageError, match="belong inside a @cute.kernel function"):
        iket.range_pop()
    with pytest.raises(UsageError, match="takes what iket.range_start"):
        iket.range_end("tail")


def test_an_old_dsl_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "4.2.0")
    with pytest.raises(
        WarplensError, match=r"nvidia-cutlass-dsl 4\.2\.0 is too old: warplens needs 4\.5\.3"
    ) as refused:
        require_cute()
    assert "\n" not in str(refused.value)


def test_the_graph_of_ranges_is_the_same_file(iket: Any, tmp_path: Path) -> None:
    graph = iket.dag("gemm").edge("load", "mma", label="smem", via="mbarrier").edge("mma", "store")
    path = graph.save(str(tmp_path / "gemm.json"))
    assert json.loads(Path(path).read_text()) == {
        "name": "gemm",
        "regions": ["load", "mma", "store"],
        "edges": [
            {"source": "load", "target": "mma", "label": "smem", "via": "mbarrier"},
            {"source": "mma", "target": "store"},
        ],
    }
