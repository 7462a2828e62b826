"""Marks in CuTe DSL kernels without `wlc.kernel`: comments in the PTX, which a profile weaves into records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.attached import attached
from tests.support.cute_gpu import compile_cute

# isort: split
from cutlass import Float32, Int32, cute
from cutlass.cute.runtime import make_fake_compact_tensor

import warplens as wl
import warplens.cute as wlc
from tests.support import cute_inert_kernels as kernels
from tests.support import cute_runtime
from tests.support.cute_auto_kernels import pointer
from tests.support.cute_examples import example
from tests.support.cute_inert_kernels import STEPS, THREADS, N, runner
from tests.support.cute_runtime import Runtime
from tests.support.paths import SUPPORT
from warplens.errors import UsageError
from warplens.frontends.cute.ptx_keeper import PtxKeeper, keep_marked_ptx
from warplens.weave.weaver import weave

BLOCKS = 4


@pytest.fixture(autouse=True)
def _front_ends() -> Iterator[None]:
    """What importing `warplens.cute` attaches and keeps, for each test anew."""
    with attached("cutlass.cutlass_dsl"):
        keep_marked_ptx()
        yield
        keep_marked_ptx()()


@pytest.fixture(name="cuda")
def _cuda(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return cute_runtime.install(monkeypatch)


class Scene:
    """A function, its array, and what the runtime has to know."""

    def __init__(self, cuda: Runtime, run: Any, n: int = STEPS) -> None:
        self.cuda, self.run = cuda, run
        self.start = np.arange(N, dtype=np.float32)
        self.y = cuda.gpu.space.alloc(self.start)
        self.given = pointer(self.y), n
        cuda.know(compile_cute(run, *self.given))

    def call(self, function: Any) -> bytes:
        """What a call leaves in the array."""
        self.cuda.gpu.space.write(self.y, self.start)
        function(*self.given)
        return self.cuda.gpu.space.read(self.y, np.float32, N).tobytes()

    def recorded(self, *, before: bool = False, **options: Any) -> wl.Trace:
        """The trace of a launch, which must leave what a plain one leaves."""
        function = cute.compile(self.run, *self.given)
        plain = self.call(function)
        with wl.profile(records_per_warp=256, **options) as profile:
            woven = self.call(function if before else cute.compile(self.run, *self.given))
        assert [woven for _, woven, _ in self.cuda.gpu.fired] == [False, True]
        assert woven == plain
        assert not profile.notes
        return profile.trace


@pytest.mark.parametrize("before", [True, False], ids=["compiled before the profile", "inside"])
def test_a_kernel_leaves_the_records_its_marks_ask_for_in_order(cuda: Runtime, before: bool) -> None:
    trace = Scene(cuda, runner(kernels.everything, BLOCKS), 3).recorded(before=before)
    losses = trace.meta.losses
    assert losses.records_lost == losses.open_spans == losses.orphan_ends == losses.tracks_without_exit == 0
    rows = trace.select(block=2, warp=1).spans.to_pylist()
    seen = [(row["region"], row["kind"], row["depth"]) for row in rows]
    even = [("even", "span", 0), ("helper", "span", 1)]
    step = [("flight", "span", 0), ("k", "value", 0)]
    first = [("flight", "span", 0), ("load", "span", 0)]
    assert seen == [
        *first, *even, *step, ("load", "span", 0), *step, ("load", "span", 0), *even, *step,
        ("total", "value", 0), ("before", "instant", 0), ("store", "span", 0),
    ]  # fmt: skip
    assert [row["value"] for row in rows if row["region"] == "k"] == [0, 1, 2]
    v = np.float32(2 * THREADS + 32)
    assert [row["value"] for row in rows if row["region"] == "total"] == [3 * 2 * v + 2 * 3 * v]
    assert {(row["block"], row["warp"]) for row in trace.spans.to_pylist()} == {
        (block, warp) for block in range(BLOCKS) for warp in range(THREADS // 32)
    }
    assert [launch.kernel for launch in trace.meta.launches] == ["everything"]


def test_marks_have_the_lines_of_the_program(cuda: Runtime) -> None:
    trace = Scene(cuda, runner(kernels.everything)).recorded()
    lines = (SUPPORT / "cute_inert_kernels.py").read_text().splitlines()
    where = trace.meta.locations
    for region, text in (("load", 'wlc.region("load")'), ("helper", 'wlc.region("helper")'), ("store", "wlc.begin")):
        file, line = where[region].rsplit(":", 1)
        assert file.endswith("cute_inert_kernels.py")
        assert text in lines[int(line) - 1]


def test_values_of_every_kind_arrive_as_they_are(cuda: Runtime) -> None:
    trace = Scene(cuda, runner(kernels.numbers), 5).recorded()
    rows = trace.select(warp=0).spans.to_pylist()
    assert {row["region"]: row["value"] for row in rows} == {
        "negative": -5, "unsigned": 2**32 - 5, "byte": -5, "unsigned byte": 251, "wide": -5_000_000_000,
        "widest": 2**62, "condition": 1, "half": 2.5, "single": 1.25, "double": 0.625, "constant": -7,
        "large": 2**63, "fraction": 0.25,
    }  # fmt: skip


def test_barriers_tell_who_waited_for_whom(cuda: Runtime) -> None:
    trace = Scene(cuda, runner(kernels.handed_over)).recorded()
    warp, region = trace.numpy("warp"), trace.spans["region"].to_pylist()
    found = {
        (region[edge["wait"]], int(warp[edge["wait"]]), region[edge["arrival_record"]], edge["kind"])
        for edge in trace.edges.to_pylist()
    }
    assert found == {("full", 1, "filled", "arrive"), ("empty", 0, "used", "arrive")}
    tiles = Counter(row["kind"] for row in trace.spans.to_pylist() if row["region"] == "tile")
    assert tiles == {"span": STEPS, "instant": STEPS}


_NO_CODE = re.compile(r"//.*|^\s*\.(loc|file)\b.*|kernel_cutlass_\w+", re.MULTILINE)


def instructions(function: Any) -> list[str]:
    """The PTX without comments, line table and empty lines."""
    text = _NO_CODE.sub("", function.__ptx__.partition("\0")[0].partition(".section")[0])
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_marks_leave_no_instruction() -> None:
    given = pointer(4096), 1
    marked, plain = (compile_cute(kernels.Scale(marked), *given) for marked in (True, False))
    assert "// @warplens B scale" in marked.__ptx__
    assert instructions(marked) == instructions(plain)


def test_the_example_compiles_for_a_gpu() -> None:
    saxpy = example("saxpy")
    x = make_fake_compact_tensor(Float32, (1 << 14,))
    text = compile_cute(saxpy.run, 2.0, x, x).__ptx__.partition("\0")[0]
    woven = weave(text)
    assert sorted(woven.regions.values()) == ["load", "store"]
    assert {place.rpartition("/")[2].partition(":")[0] for place in woven.locations.values()} == {"saxpy.py"}


def test_kernels_that_are_methods_are_told_by_their_class(cuda: Runtime) -> None:
    trace = Scene(cuda, kernels.Scale(True)).recorded()
    assert [launch.kernel for launch in trace.meta.launches] == ["Scale.kernel"]
    assert trace.stats()["scale"].count == THREADS // 32


def test_a_function_without_marks_keeps_nothing(cuda: Runtime) -> None:
    before = PtxKeeper.kept
    function = cute.compile(kernels.Scale(False), *(pointer(4096), 1))
    assert function.__ptx__ is None
    assert PtxKeeper.kept == before
    assert cute.compile(kernels.Scale(True), *(pointer(4096), 1)).__ptx__ is not None
    assert PtxKeeper.kept == before + 1


def test_automatic_marks_stand_beside_them(cuda: Runtime) -> None:
    trace = Scene(cuda, kernels.Scale(True)).recorded(auto="stores")
    names = {row["region"] for row in trace.spans.to_pylist()}
    assert {"scale", "n"} < names
    assert any(name.startswith("store cute_inert_kernels.py:") for name in names)


@pytest.mark.parametrize(
    "options", [{"mode": "aggregate"}, {"full": "ring"}, {"overhead": 0.05}, {"warps": [1]}], ids=str
)
def test_options_of_woven_marks_apply(cuda: Runtime, options: dict[str, Any]) -> None:
    trace = Scene(cuda, runner(kernels.everything)).recorded(**options)
    warps = 1 if "warps" in options else THREADS // 32
    counts = {row.region: row.count for row in trace.stats()}
    flights = {} if options.get("mode") == "aggregate" else {"flight": (STEPS + 1) * warps}
    wanted = {"load": STEPS * warps, "even": 3 * warps, "helper": 3 * warps, "store": warps, **flights}
    assert {name: counts.get(name) for name in wanted} == wanted


def test_regions_are_delayed(cuda: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(cuda, runner(kernels.everything))
    plain, function = scene.call(cute.compile(scene.run, *scene.given)), cute.compile(scene.run, *scene.given)
    monkeypatch.setattr(cuda.gpu, "event", lambda stream: next(cuda.gpu.handles))
    monkeypatch.setattr(cuda.gpu, "elapsed_ns", lambda first, second: 1000.0)
    found = wl.sensitivity(lambda: scene.call(function), kernels="everything", rounds=3, records_per_warp=64)
    assert {(one.region, one.slope) for one in found.regions} == {
        (name, 0.0) for name in ("flight", "load", "even", "helper", "store")
    }, "the fake clock stands still"
    assert found.results == "identical"
    assert scene.call(function) == plain


def test_kernels_of_both_ways_are_recorded_in_one_call(cuda: Runtime) -> None:
    y = cuda.gpu.space.alloc(np.zeros(N, np.float32))
    prof = wlc.buffer(kernel="with_a_buffer")
    given = pointer(y), 3, prof
    cuda.know(compile_cute(kernels.run_both_ways, *given))
    with wl.profile() as profile:
        cute.compile(kernels.run_both_ways, *given)(*given)
    assert cuda.gpu.space.read(y, np.float32, 4).tolist() == [2, 0, 0, 1]
    assert {row.region: row.count for row in profile.trace.stats()} == {"woven": 1, "direct": 1}


def test_switched_off_marks_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS", "0")
    assert "@warplens" not in compile_cute(kernels.Scale(True), pointer(4096), 1).__ptx__


@cute.kernel
def no_end(y: cute.Pointer, n: Int32):
    wlc.begin("load")


@cute.kernel
def no_begin(y: cute.Pointer, n: Int32):
    wlc.begin("load")
    wlc.end("load")
    wlc.end("laod")


@cute.kernel
def too_late(y: cute.Pointer, n: Int32):
    wlc.instant("first")
    wlc.kernel(None)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (no_end, r"test_inert_marks.py:\d+: 'load' begins but never ends in kernel 'no_end"),
        (no_begin, r"'laod' ends but never begins in kernel 'no_begin.*did you mean 'load'"),
        (too_late, r"test_inert_marks.py:\d+: a mark comes before wlc.kernel\(prof\); put it on the first line"),
    ],
    ids=["no end", "no begin", "wlc.kernel too late"],
)
def test_mistakes_are_told_while_the_kernel_is_traced(kernel: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cute.compile(runner(kernel), pointer(4096), 1)


def test_marks_that_come_too_late_to_be_kept_are_named(cuda: Runtime) -> None:
    """As if `warplens.cute` had been imported inside the kernel."""
    scene = Scene(cuda, kernels.Scale(True))
    keep_marked_ptx()()
    with pytest.raises(wl.WarplensError, match="no kernel was profiled"):
        with wl.profile() as profile:
            cute.compile(scene.run, *scene.given)
    assert "import them at the top of the file" in profile.notes["cutlass"][0]
