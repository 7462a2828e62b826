"""IKET in many shapes of code: the drop-in, and IKET's own marks where they are switched on, leave the same records."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import cute_gpu  # noqa: F401

# The DSL reads the architecture that this sets when it is imported.
from tests.support.attached import attached

# isort: split
from cutlass import cute

import warplens as wl
from tests.support import cute_runtime
from tests.support.cute_auto_kernels import pointer
from tests.support.cute_runtime import Runtime
from tests.support.iket_program import DROP_IN, REAL, N, load
from tests.support.paths import SUPPORT
from warplens.errors import WarplensError
from warplens.frontends.cute.ptx_keeper import keep_marked_ptx

STEPS = 3
Rows = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _front_ends() -> Iterator[None]:
    """What a test attaches and keeps is gone after it."""
    with attached("cutlass.cutlass_dsl"):
        yield
        keep_marked_ptx()()


def needs_iket() -> None:
    try:
        import cutlass.cute.experimental.iket  # noqa: F401
    except (ImportError, NotImplementedError) as missing:
        pytest.skip(f"needs nvidia-cutlass-dsl with IKET: {missing}")


@pytest.fixture(name="shapes", params=["drop-in", "recognised"])
def _shapes(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """The kernels in one vocabulary, and the options with which it is compiled."""
    source = SUPPORT / "iket_shapes.py"  # its import of the drop-in has effects, so it is loaded in tests alone
    if request.param == "drop-in":
        keep_marked_ptx()
        return load(tmp_path, source=source), ""
    needs_iket()
    return load(tmp_path, (DROP_IN, REAL), source=source), "iket"


@pytest.fixture(name="cuda")
def _cuda(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return cute_runtime.install(monkeypatch)


def recorded(cuda: Runtime, shapes: tuple[Any, str], name: str) -> wl.Trace:
    """The trace of a launch, which must leave what a plain one leaves."""
    module, options = shapes
    run = module.runner(getattr(module, name))
    start = np.arange(N, dtype=np.float32)
    y = cuda.gpu.space.alloc(start)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        keep = f"--keep-ptx --dump-dir={folder}"
        cuda.know(cute.compile(run, pointer(y), STEPS, options=f"{options} {keep}".strip()))
        plain = cuda.know(cute.compile(run, pointer(y), STEPS, options=keep))
    for profiled in (False, True):
        cuda.gpu.space.write(y, start)
        if profiled:
            with wl.profile(records_per_warp=512) as profile:
                cute.compile(run, pointer(y), STEPS, options=options or None)(pointer(y), STEPS)
        else:
            plain(pointer(y), STEPS)
        results.append(cuda.gpu.space.read(y, np.float32, N).tobytes())
    assert [woven for _, woven, _ in cuda.gpu.fired] == [False, True]
    assert results[0] == results[1]
    assert not profile.notes
    assert profile.trace.meta.losses.records_lost == 0
    return profile.trace


def rows(trace: wl.Trace, warp: int = 0, block: int = 1) -> Rows:
    """What a warp recorded, in order: spans with their depth, values with their value, instants by name alone."""
    found = trace.select(block=block, warp=warp).spans.to_pylist()
    last = {"span": "depth", "value": "value"}
    return [(row["region"], *([row[last[row["kind"]]]] if row["kind"] in last else [])) for row in found]


def errors(trace: wl.Trace) -> tuple[int, int, int]:
    losses = trace.meta.losses
    return losses.open_spans, losses.orphan_ends, losses.mismatched_ends


def test_ranges_nest_and_cross(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "nested")
    assert rows(trace) == [("outer", 0), ("crossing", 1), ("inner", 2), ("inner", STEPS), ("innermost", 3)]
    outer, crossing = (
        trace.select(block=1, warp=0, region=name).spans.to_pylist()[0] for name in ("outer", "crossing")
    )
    assert crossing["start_cycle"] + crossing["dur_cycles"] > outer["start_cycle"] + outer["dur_cycles"]
    assert errors(trace)[:2] == (0, 0)
    assert errors(trace)[2] == 4, "one crossing in each warp, which is told and shown"


def test_every_warp_has_the_ranges_of_its_role(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "roles")
    steps = [row for k in range(STEPS) for row in (("step", 2), ("step", k))]
    assert rows(trace, 0) == [("first warp", 0), ("produce", 1), *steps]
    assert rows(trace, 1) == [("consume", 0), ("consumed", 1)]
    assert errors(trace) == (0, 0, 0)


def test_payloads_of_every_type_keep_their_value(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "payloads")
    assert rows(trace) == [
        ("Int8", STEPS - 8), ("Uint8", STEPS + 250), ("Int16", STEPS - 300), ("Uint16", STEPS + 65000),
        ("Int32", STEPS - 100000), ("Uint32", 2**32 - STEPS), ("Int64", STEPS - 2**40), ("Uint64", STEPS + 2**40),
        ("Float32", STEPS / 4), ("Float64", STEPS / 8), ("int", -7), ("float", 0.5),
        ("pushed", 0), ("pushed", STEPS - 6), ("started", 1), ("started", STEPS), ("started", STEPS + 1),
    ]  # fmt: skip
    assert errors(trace) == (0, 0, 0)


def test_marks_in_loops_are_recorded_each_time(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "loops")
    parts = [("part 0", 1), ("part 0", 0), ("part 1", 1), ("part 1", 1)]
    steps = [row for k in range(STEPS) for row in (("between waits", 0), *parts, *([("second",)] if k == 1 else []))]
    assert rows(trace) == [*steps, ("poll", STEPS), ("poll", STEPS - 2)]
    assert errors(trace) == (0, 0, 0)


def test_functions_have_marks_and_return_tokens(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "functions")
    assert rows(trace) == [
        ("by a function", 0), ("doubled", 1), ("doubled", STEPS), ("returned", 1), ("returned", STEPS),
        ("doubled", 2), ("doubled", 0), ("doubled", 2), ("doubled", 1), ("returned", STEPS + 1),
    ]  # fmt: skip
    assert errors(trace) == (0, 0, 0)


def test_ranges_that_are_left_open_are_shown_as_open(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "left_open")
    assert rows(trace) == [("never popped", 0), ("never ended", 1), ("popped", 2)]
    assert errors(trace) == (2 * 4, 0, 0)
    found = trace.select(block=1, warp=1).spans.to_pylist()
    assert [row["open"] for row in found] == [True, True, False]


def test_methods_have_marks_and_while_loops_carry_tokens(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "methods")
    tiles = [(("persistent tile", 0), ("persistent work", 1), ("persistent work", left)) for left in (3, 2, 1)]
    assert rows(trace) == [row for tile in tiles for row in tile]
    assert errors(trace) == (0, 0, 0)


drop_in = pytest.mark.parametrize("shapes", ["drop-in"], indirect=True)


@drop_in
def test_payloads_may_be_of_types_that_iket_does_not_take(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    assert rows(recorded(cuda, shapes, "more_payloads")) == [
        ("Boolean", 1), ("Float16", STEPS / 2), ("BFloat16", STEPS * 2), ("bool", 1), ("large", 2**40),
        ("unsigned", 2**63 + 2**11),
    ]  # fmt: skip


@drop_in
def test_there_may_be_any_number_of_names_inside_each_other(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    trace = recorded(cuda, shapes, "many_events")
    assert rows(trace) == [(f"part {depth}", depth) for depth in range(40)]
    assert errors(trace) == (0, 0, 0)


@drop_in
def test_names_have_any_length(cuda: Runtime, shapes: tuple[Any, str]) -> None:
    """IKET refuses names of more than 32 characters when it compiles the kernel."""
    trace = recorded(cuda, shapes, "long_names")
    long = shapes[0].LONG
    assert rows(trace) == [
        (long + "first product", 0), (long + "second product", 0), ('ends: 100 % of µs\t"quoted"',)
    ]  # fmt: skip


@drop_in
def test_an_import_inside_a_kernel_is_named_where_it_comes_too_late(
    cuda: Runtime, shapes: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_iket()  # older versions of the DSL refuse imports of submodules inside kernels
    keep_marked_ptx()()
    monkeypatch.delitem(sys.modules, "warplens.compat.iket")
    monkeypatch.delattr("warplens.compat.iket")
    module, _ = shapes
    y = cuda.gpu.space.alloc(np.zeros(N, np.float32))
    with pytest.raises(WarplensError, match="no kernel was profiled"):
        with wl.profile() as profile:
            cute.compile(module.runner(module.imported_here), pointer(y), STEPS)
    (said,) = profile.notes["cutlass"]
    assert "import them at the top of the file" in said
    # What is compiled from now on keeps its PTX.
    assert rows(recorded(cuda, shapes, "imported_here")) == [("inside", 0)]
