"""Interception of CuPy, cuda.core, numba-cuda and cuda.bindings on a driver without a GPU: kernels run for real, in the
interpreter, plain or woven."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warplens as wl
from tests.support.fake_driver import FakeDriver, fake_cupy, fake_driver, modules
from tests.support.golden_ptx import GOLDEN
from tests.support.vector_add_launch import BLOCK, GRID, PTX, Data
from warplens.auto.rules import Auto
from warplens.errors import WarplensError
from warplens.frontends import cuda_bindings, cuda_core, cupy, numba, registry
from warplens.frontends.intercept import frontend
from warplens.frontends.intercept.woven_module import Unavailable, marked_text, source_name, variables_of
from warplens.launch.overhead_budget import MAX_WEAVINGS
from warplens.launch.timing import Timings
from warplens.ptx import tree
from warplens.session import Session, stack
from warplens.trace.schema import LIFE
from warplens.weave.weaving import Weaving


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return fake_driver(monkeypatch)


@pytest.fixture
def attached() -> Iterator[Callable[[Any], None]]:
    """Attach interceptors for one test alone."""
    before = list(stack.front_ends), set(registry.attached)

    def attach(*which: Any) -> None:
        for one in which:
            registry.attach(next(known.library for known in registry.FRONT_ENDS if known.module == one.__name__))

    yield attach
    # Those of other front ends stay: they attach once per process.
    ours = (frontend.__name__, "warplens.frontends.cute.automatic")
    stack.front_ends[:] = [hook for hook in stack.front_ends if hook in before[0] or hook.__module__ not in ours]
    registry.attached.intersection_update(before[1] | {"triton"})


@pytest.fixture
def cupy_kernel(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, attached: Any) -> Iterator[Any]:
    with modules(monkeypatch, **fake_cupy(gpu, PTX)) as made:
        cupy._classes.cache_clear()
        cupy._compile.cache_clear()
        attached(cupy)
        yield made["cupy"].RawKernel
    cupy._classes.cache_clear()


def test_cupy_kernels_are_woven_inside_a_profile_and_plain_outside(gpu: FakeDriver, cupy_kernel: Any) -> None:
    data, old = Data(gpu), cupy_kernel("source", "vector_add")
    never = cupy_kernel("source", "never called")
    old(GRID, BLOCK, data.arguments)
    for _ in range(2):
        with wl.profile(auto="all") as prof:
            new = cupy_kernel("source", "vector_add")
            for kernel in (old, new):
                kernel(GRID, BLOCK, data.arguments)
                data.result()
        assert [woven for _, woven, _ in gpu.fired[-2:]] == [True, True]
        assert "load vector_add.cu:21" in prof.trace.regions, "named by the kernel, as CuPy's own name is a hash"
        assert len(prof.trace.meta.launches) == 2
        assert prof.trace.meta.launches[0].extra["registers"] == 40
        for kernel in (old, new):
            kernel(GRID, BLOCK, data.arguments)
            data.result()
            assert type(kernel.kernel).__name__ == "Function"
        assert [woven for _, woven, _ in gpu.fired[-2:]] == [False, False]
    assert never._kernel_cache == [None], "what the program does not run is not compiled for it"
    import cupy as fake

    assert [arch for _, _, (_, arch) in fake.compiled] == ["cubin", "ptx"]
    assert all("-lineinfo" in options for _, options, (_, arch) in fake.compiled if arch == "ptx")
    assert set(fake.cache.values()) == {b"\x7fELF"}, "PTX never reaches CuPy's cache"


def test_weak_proxies_of_what_is_gone_are_left_alone(gpu: FakeDriver, cupy_kernel: Any) -> None:
    """torch.compile leaves such behind, and asking one what it is raises."""
    gone = type("Gone", (), {})()
    proxy = weakref.proxy(gone)
    del gone
    assert any(item is proxy for item in gc.get_objects())
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    kernel(GRID, BLOCK, data.arguments)
    with wl.profile(auto="all") as prof:
        kernel(GRID, BLOCK, data.arguments)
    assert len(prof.trace.meta.launches) == 1


def test_cupy_launches_pass_streams_and_settings_on(gpu: FakeDriver, cupy_kernel: Any) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="stores"):
        kernel(GRID, BLOCK, data.arguments, stream=SimpleNamespace(ptr=42))
    assert gpu.fired == [("vector_add", True, 42)]
    (source, target) = gpu.settings[-1]
    assert not gpu.woven(source)
    assert gpu.woven(target)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"broken": True}, "does not assemble: cuLibraryLoadData failed"),
    ],
)
def test_a_twin_that_would_harm_does_not_run(
    gpu: FakeDriver, cupy_kernel: Any, change: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    vars(gpu).update(change)
    profile = wl.profile(auto="all")
    with pytest.raises(WarplensError, match="no kernel was profiled|nothing"), profile:
        for _ in range(2):
            kernel(GRID, BLOCK, data.arguments)
            data.result()
    assert not any(woven for _, woven, _ in gpu.fired)
    assert [text for text in profile.notes["vector_add"] if reason in text]
    assert capsys.readouterr().err.count(reason) == 1
    with pytest.raises(WarplensError, match="strict=True"), wl.profile(auto="all", strict=True):
        kernel(GRID, BLOCK, data.arguments)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"local": {False: 0, True: 64}}, "spills 64 more bytes of registers"),
        (
            {"blocks": {False: 4, True: 3}},
            "40 registers instead of 32, and an SM holds 3 of its blocks instead of 4",
        ),
    ],
)
def test_of_a_kernel_that_marks_would_harm_the_lives_of_its_warps_are_left(
    gpu: FakeDriver, cupy_kernel: Any, change: dict[str, Any], reason: str
) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    vars(gpu).update(change)
    with wl.profile(auto="all") as profile:
        kernel(GRID, BLOCK, data.arguments)
        data.result()
    assert gpu.fired == [("vector_add", True, 0)]
    (note,) = profile.notes["vector_add"]
    assert note.startswith("only the lifetime of each warp is recorded: with marks it")
    assert reason in note
    rows = profile.trace.spans.to_pylist()
    assert [(row["region"], row["block"]) for row in rows] == [(LIFE, block) for block in range(4)]
    assert all(row["dur_cycles"] > 0 for row in rows)
    with pytest.raises(WarplensError, match="strict=True"), wl.profile(auto="all", strict=True):
        kernel(GRID, BLOCK, data.arguments)


def test_a_kernel_that_spills_with_marks_in_loops_keeps_those_around_them(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rung is tried in turn: here the first weaving without registers between marks does no harm."""

    def resources(function: int) -> dict[str, int]:
        text = gpu.kernels[function][0]
        harmed = gpu.woven(function) and '"fixed"' not in text
        return {"registers": 32, "local_bytes": 64 * harmed, "shared_bytes": 0}

    monkeypatch.setattr(gpu, "resources", resources)
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all") as profile:
        kernel(GRID, BLOCK, data.arguments)
        data.result()
    (note,) = profile.notes["vector_add"]
    assert note == "only its body is marked: with marks it spills 64 more bytes of registers"
    (region,) = profile.trace.regions
    assert region.startswith("body vector_add.cu:")
    assert not profile.trace.meta.losses.empty_slots


@pytest.mark.parametrize("spills", [False, True])
def test_a_twin_that_takes_many_registers_is_limited_where_that_spills_nothing(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch, spills: bool
) -> None:
    def resources(function: int) -> dict[str, int]:
        most = re.search(r"\.maxnreg (\d+)", gpu.kernels[function][0])
        registers = int(most[1]) if most else 60 if gpu.woven(function) else 40
        return {"registers": registers, "local_bytes": 8 * (spills and most is not None), "shared_bytes": 0}

    monkeypatch.setattr(gpu, "resources", resources)
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all") as prof:
        kernel(GRID, BLOCK, data.arguments)
        data.result()
    assert gpu.fired == [("vector_add", True, 0)]
    assert prof.trace.meta.launches[0].extra["registers"] == (60 if spills else 44)


def test_a_loss_of_occupancy_that_the_user_allows_is_taken(gpu: FakeDriver, cupy_kernel: Any) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    gpu.blocks = {False: 4, True: 3}
    for least, marked in ((0.75, True), (0.8, False)):
        with wl.profile(auto="all", least_occupancy=least) as profile:
            kernel(GRID, BLOCK, data.arguments)
            data.result()
        assert (LIFE in profile.trace.regions) is not marked
    assert any("least_occupancy=0.75 allows it" in text for text in profile.notes["vector_add"])


def test_ptx_that_the_weaver_cannot_read_leaves_the_kernel_plain(
    gpu: FakeDriver, cupy_kernel: Any, tmp_path: Path
) -> None:  # fmt: skip
    (tmp_path / "k.ptx").write_text(
        PTX.replace(".visible .entry vector_add", ".unheard .of;\n.visible .entry vector_add")
    )
    profile, data = wl.profile(auto="all"), Data(gpu)
    plain, gpu.plain = gpu.plain, lambda text, symbol: plain(PTX, symbol)
    with pytest.raises(WarplensError, match="no kernel was profiled"), profile:
        cupy_kernel(None, "vector_add", str(tmp_path / "k.ptx"))(GRID, BLOCK, data.arguments)
    data.result()
    assert any("warplens cannot parse this PTX: '.unheard .of;'" in text for text in profile.notes["vector_add"])


def test_without_memory_for_records_an_automatically_marked_kernel_runs_plain(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def full(size: int) -> int:
        raise WarplensError("cuMemAlloc failed: out of memory (CUDA error 2)")

    monkeypatch.setattr(gpu, "allocate", full)
    profile, data = wl.profile(auto="all"), Data(gpu)
    with pytest.raises(WarplensError, match="no kernel was profiled"), profile:
        cupy_kernel("source", "vector_add")(GRID, BLOCK, data.arguments)
    data.result()
    assert any("no device memory for 4 tracks" in text for text in profile.notes["vector_add"])
    with pytest.raises(WarplensError, match="no device memory"), wl.profile(auto="all", strict=True):
        cupy_kernel("source", "vector_add")(GRID, BLOCK, data.arguments)


def test_a_version_whose_insides_are_not_known_runs_without_marks(gpu: FakeDriver, cupy_kernel: Any) -> None:
    import cupy._core.raw as raw

    data, known = Data(gpu), raw._get_raw_module
    kernel = cupy_kernel("source", "vector_add")
    kernel(GRID, BLOCK, data.arguments)
    del raw._get_raw_module
    profile = wl.profile(auto="all")
    try:
        with pytest.raises(WarplensError, match="no kernel was profiled"), profile:
            kernel(GRID, BLOCK, data.arguments)
    finally:
        raw._get_raw_module = known
    assert any("does not know this version" in text for text in profile.notes["cupy"])


def test_a_launch_function_that_outlives_the_profile_launches_the_plain_kernel(
    gpu: FakeDriver, cupy_kernel: Any
) -> None:  # fmt: skip
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all") as prof:
        kernel(GRID, BLOCK, data.arguments)
        kept = kernel.kernel
    kept(GRID, BLOCK, data.arguments)
    assert [woven for _, woven, _ in gpu.fired] == [True, False]
    assert prof.seen == {"vector_add": 1}


@pytest.mark.parametrize("least", [1.0, 0.5])
def test_a_dense_twin_is_woven_leaner_before_it_or_a_block_is_given_up(
    gpu: FakeDriver, cupy_kernel: Any, least: float
) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    gpu.blocks, gpu.squeezes = {False: 4, True: 3}, True
    with wl.profile(auto="all", least_occupancy=least) as prof:
        kernel(GRID, BLOCK, data.arguments)
        data.result()
    assert [woven for _, woven, _ in gpu.fired] == [True]
    assert not prof.notes
    limits = {int(n) for text, _ in gpu.kernels.values() for n in re.findall(r"\.maxnreg (\d+)", text)}
    assert limits == {255}, "four blocks of one warp leave every register a thread can have"


def test_only_wanted_launches_of_wanted_kernels_are_woven(gpu: FakeDriver, cupy_kernel: Any) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all", launches=2) as prof:
        for _ in range(4):
            kernel(GRID, BLOCK, data.arguments)
    assert [woven for _, woven, _ in gpu.fired] == [True, True, False, False]
    assert prof.seen["vector_add"] == 4
    with pytest.raises(WarplensError), wl.profile(auto="all", kernels="other"):
        kernel(GRID, BLOCK, data.arguments)
    with pytest.raises(WarplensError), wl.profile():
        kernel(GRID, BLOCK, data.arguments)
    assert not any(woven for _, woven, _ in gpu.fired[4:])


@pytest.mark.parametrize("library", ["cupy", "cuda.core"])
def test_recorded_launches_in_the_steady_state_are_not_decided_again(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch, attached: Any, library: str
) -> None:
    decided: list[str] = []
    original = Session.launch
    monkeypatch.setattr(Session, "launch", lambda self, *given: decided.append("") or original(self, *given))
    data = Data(gpu)
    with modules(monkeypatch, **(fake_core(gpu) if library == "cuda.core" else {})) as made:
        if library == "cuda.core":
            attached(cuda_core)
        with wl.profile(auto="all", records_per_warp=64) as prof:
            if library == "cuda.core":
                core = made["cuda.core"]
                kernel = core.Program("source", "c++").compile("cubin").get_kernel("vector_add")
                call = lambda: core.launch(SimpleNamespace(handle=7), CONFIG, kernel, *data.arguments)  # noqa: E731
            else:
                kernel = cupy_kernel("source", "vector_add")
                call = lambda: kernel(GRID, BLOCK, data.arguments)  # noqa: E731
            for _ in range(20):
                call()
                data.result()
    assert [woven for _, woven, _ in gpu.fired] == [True] * 20
    assert len(decided) < 5
    assert prof.seen["vector_add"] == 20
    assert len(prof.trace.meta.launches) == 20
    spans = [prof.trace.select(launch=number).spans.num_rows for number in range(20)]
    assert len(set(spans)) == 1
    assert spans[0] > 0


@pytest.mark.parametrize("library", ["cupy", "cuda.core"])
def test_another_grid_of_a_kernel_that_warplens_is_done_with_is_recorded(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch, attached: Any, library: str
) -> None:
    data, whole, half = Data(gpu), (4, 1, 1), (2, 1, 1)
    with modules(monkeypatch, **(fake_core(gpu) if library == "cuda.core" else {})) as made:
        if library == "cuda.core":
            attached(cuda_core)
        with wl.profile(auto="all", launches=1) as prof:
            if library == "cuda.core":
                core = made["cuda.core"]
                kernel = core.Program("source", "c++").compile("cubin").get_kernel("vector_add")

                def call(grid: Any) -> None:
                    config = SimpleNamespace(**{**vars(CONFIG), "grid": grid})
                    core.launch(SimpleNamespace(handle=7), config, kernel, *data.arguments)
            else:
                kernel = cupy_kernel("source", "vector_add")

                def call(grid: Any) -> None:
                    kernel(grid, BLOCK, data.arguments)

            grids = [*[whole] * 25, half, whole, *[half] * 25, whole]
            for grid in grids:
                call(grid)
    woven = [at for at, (_, is_woven, _) in enumerate(gpu.fired) if is_woven]
    assert woven == [0, 25]
    assert prof.seen["vector_add"] == len(grids)
    assert [one.extra["variant_launches"] for one in prof.trace.meta.launches] == [27, 26]


def test_a_cupy_launch_that_warplens_is_done_with_asks_for_nothing(gpu: FakeDriver, cupy_kernel: Any) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all", launches=1) as prof:
        for _ in range(30):
            kernel(GRID, BLOCK, data.arguments)
        cupy_now = sys.modules["cupy.cuda"]
        cupy_now.get_current_stream = None  # asking for the stream would fail
        kernel(GRID, BLOCK, data.arguments)
        kernel(list(GRID), list(BLOCK), data.arguments, stream=SimpleNamespace(ptr=7))
    assert prof.seen["vector_add"] == 32
    assert len(prof.trace.meta.launches) == 1


def test_marked_and_unmarked_launches_of_one_run_are_held_against_each_other(gpu: FakeDriver, cupy_kernel: Any) -> None:
    """The fake's events say 3 us for a woven launch and 2 us for a plain one, beside what an event itself takes."""
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    for recorded, more, expected in ((3, 4, 1.5), (3, 2, None), (1, 6, None), (10, 0, None)):
        with wl.profile(auto="loads", launches=recorded) as prof:
            for _ in range(recorded + more):
                kernel(GRID, BLOCK, data.arguments)
                data.result()
            kernel((2,), BLOCK, data.arguments)  # of another shape: it tells nothing
        same = [info for info in prof.trace.meta.launches if info.grid == (GRID[0], 1, 1)]
        assert {info.cost.get("slowdown_measured") for info in same} == {expected}, recorded
        assert not gpu.events, "every event is given back"
        assert sum(woven for _, woven, _ in gpu.fired) == len(prof.trace.meta.launches)
        gpu.fired.clear()


def test_the_overhead_budget_weaves_anew_and_keeps_what_is_fastest(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is woven, the fake takes 1.5 times as long with marks."""
    monkeypatch.setattr(Timings, "are_over", lambda timings, variant: True)
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all", launches=4, overhead=0.05) as prof:
        for _ in range(60):
            kernel(GRID, BLOCK, data.arguments)
            data.result()
    tried = prof.trace.meta.launches[0].extra["overhead_budget"]["tried"]
    assert 2 <= len(tried) <= MAX_WEAVINGS + 1
    assert not tried[0]["omitted"]
    assert tried[1]["omitted"]
    assert [one["lives"] for one in tried] == [False] * (len(tried) - 1) + [True]
    assert len(prof.trace.meta.launches) == 4
    assert "nothing that was left out made it faster" in prof.notes["vector_add"][0]
    assert not gpu.events, "every event is given back"


def test_lives_alone_are_recorded_if_any_mark_costs_too_much(
    gpu: FakeDriver, cupy_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timings, "are_over", lambda timings, variant: True)
    monkeypatch.setattr(Timings, "slowdown_of", lambda timings, variant: 1.01 if variant.thinning.lives else 1.2)
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    with wl.profile(auto="all", launches=4, overhead=0.05) as prof:
        for _ in range(60):
            kernel(GRID, BLOCK, data.arguments)
            data.result()
    assert {row["region"] for row in prof.trace.spans.to_pylist()} == {LIFE}
    assert "only the lifetimes of its warps are recorded; 1.01x now" in prof.notes["vector_add"][0]


def test_intercepted_kernels_can_keep_statistics(gpu: FakeDriver, cupy_kernel: Any) -> None:
    data, kernel = Data(gpu), cupy_kernel("source", "vector_add")
    found = []
    for mode in ("trace", "aggregate"):
        with wl.profile(auto="all", mode=mode) as prof:
            kernel(GRID, BLOCK, data.arguments)
            data.result()
        found.append({row.region: row.count for row in prof.trace.stats()})
    assert prof.trace.aggregated
    assert found[0] == found[1]


def test_machine_code_is_named_with_the_reason(gpu: FakeDriver, cupy_kernel: Any, tmp_path: Path) -> None:
    data = Data(gpu)
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / "k.ptx").write_text(PTX)
    with wl.profile(auto="all") as prof:
        cupy_kernel(None, "vector_add", str(tmp_path / "k.cubin"))(GRID, BLOCK, data.arguments)
        cupy_kernel(None, "vector_add", str(tmp_path / "k.ptx"))(GRID, BLOCK, data.arguments)
    assert [woven for _, woven, _ in gpu.fired] == [False, True]
    assert any("k.cubin, machine code without PTX" in text for text in prof.notes["vector_add"])


def test_module_variables_are_shared_or_refused() -> None:
    def module(text: str) -> tree.PtxModule:
        return tree.parse(".version 8.0\n.target sm_80\n.address_size 64\n" + text)

    def shared(declared: str, instruction: str) -> tuple[str, ...]:
        body = f".visible .entry k()\n{{\n\t.reg .b32 %r<2>;\n\t{instruction}\n\tret;\n}}\n"
        return variables_of(module(declared + "\n" + body), "k")

    assert shared(".visible .const .align 4 .b8 taps[16];", "ld.const.u32 %r1, [taps];") == ("taps",)
    assert shared(".global .align 1 .b8 $str[3] = {104, 105, 0};", "ld.global.u8 %r1, [$str];") == ()
    assert shared(".visible .global .align 4 .u32 counter;", "mov.u32 %r1, 1;") == ()
    with pytest.raises(Unavailable, match="keeps the variable counter.*PTX line 8 may write it"):
        shared(".visible .global .align 4 .u32 counter;", "atom.global.add.u32 %r1, [counter], 1;")


def test_a_twin_is_woven_without_the_other_kernels_of_its_module() -> None:
    text = (GOLDEN / "nvcc_kernels.ptx").read_text()
    names = [entry.name for entry in tree.parse(text).entries]
    woven, _, _ = marked_text(text, names[0], Auto.of(True), Weaving())
    assert len(names) > 3
    assert [entry.name for entry in tree.parse(woven.text).entries] == names[:1]


def test_made_up_file_names_become_the_kernels() -> None:
    assert source_name('.file 1 "/tmp/x/0a1b.cubin.cu"\n', "k.cu") == '.file 1 "k.cu"\n'
    assert source_name('.file 1 "default_program"\n', "k.cu") == '.file 1 "k.cu"\n'
    assert source_name('.file 1 "/home/me/mine.cu"\n', "k.cu") == '.file 1 "/home/me/mine.cu"\n'


def fake_core(gpu: FakeDriver) -> dict[str, dict[str, Any]]:
    class Kernel:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        @staticmethod
        def from_handle(handle: int) -> Kernel:
            return Kernel(handle)

    class ObjectCode:
        def __init__(self, code: bytes, code_type: str) -> None:
            self.code, self.code_type, self._kernel = code, code_type, gpu.plain(PTX, "vector_add")

        @property
        def handle(self) -> int:
            return gpu.kernel_library(self._kernel)

        def get_kernel(self, name: str) -> Kernel:
            return Kernel(self._kernel)

    @dataclass
    class ProgramOptions:
        name: str = "default_program"
        lineinfo: bool | None = None
        debug: bool | None = None

    class Program:
        def __init__(self, code: str, code_type: str, options: Any = None) -> None:
            self.options = options

        def compile(self, target: str, names: Any = ()) -> ObjectCode:
            lines = getattr(self.options, "lineinfo", None)
            if target == "ptx":
                assert lines, "regions are named by line information"
                assert self.options.name == "vector_add.cu"
            return ObjectCode(PTX.encode() if target == "ptx" else b"\x7fELF", target)

    def launch(stream: Any, config: Any, kernel: Kernel, *arguments: Any) -> None:
        gpu.launch(kernel.handle, config.grid, config.block, [int(a) for a in arguments], 0, stream.handle)

    return {"cuda": {}, "cuda__core": {"Kernel": Kernel, "ObjectCode": ObjectCode, "Program": Program, "launch": launch,
            "ProgramOptions": ProgramOptions}}  # fmt: skip


CONFIG = SimpleNamespace(grid=(4, 1, 1), block=(32, 1, 1), shmem_size=0, cluster=None)


def test_cuda_core_programs(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, attached: Any) -> None:
    gpu.handles = iter(range(1000, 10_000, 10))
    with modules(monkeypatch, **fake_core(gpu)) as made, modules(monkeypatch, user={}) as users:
        library, user, data = made["cuda.core"], users["user"], Data(gpu)
        user.go, program, stream = library.launch, library.Program, SimpleNamespace(handle=5)
        before = library.Program("source", "c++").compile("cubin").get_kernel("vector_add")
        attached(cuda_core)
        with wl.profile(auto="all") as prof:
            inside = library.Program("source", "c++").compile("cubin").get_kernel("vector_add")
            user.go(stream, CONFIG, inside, *data.arguments)
            data.result()
            user.go(stream, CONFIG, before, *data.arguments)
            data.result()
        assert gpu.fired == [("vector_add", True, 5), ("vector_add", False, 5)]
        assert any("compiled before the profile began" in text for text in prof.notes["vector_add"])
        assert user.go is library.launch
        assert library.launch.__name__ == "launch"
        assert library.Program is program


def test_numba_kernels_are_reached_through_cuda_core(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, attached: Any
) -> None:  # fmt: skip
    class CUDACodeLibrary:
        _linking_files: tuple[str, ...] = ()
        needs_cudadevrt = False

        def __init__(self) -> None:
            self.kernel = gpu.plain(PTX, "vector_add")

        def get_cufunc(self) -> Any:
            return SimpleNamespace(handle=self.kernel)

        def get_asm_strs(self) -> list[str]:
            return [PTX]

    class Kernel:
        def __init__(self, *, debug: bool = False, lineinfo: bool = False) -> None:
            self.library, self.lineinfo = CUDACodeLibrary(), lineinfo

        def launch(self, arguments: Any) -> None:
            function = self.library.get_cufunc()
            kernel = sys.modules["cuda.core"].Kernel(function.handle)
            sys.modules["numba.cuda.dispatcher"].launch(SimpleNamespace(handle=0), CONFIG, kernel, *arguments)

    parts = fake_core(gpu)
    numba_parts = {"numba": {}, "numba__cuda": {}, "numba__cuda__codegen": {"CUDACodeLibrary": CUDACodeLibrary},
                   "numba__cuda__dispatcher": {"_Kernel": Kernel, "launch": parts["cuda__core"]["launch"]}}  # fmt: skip
    original = CUDACodeLibrary.get_cufunc, Kernel.__init__
    with modules(monkeypatch, **parts, **numba_parts):
        attached(numba)
        data, old = Data(gpu), Kernel()
        with wl.profile(auto="loads") as prof:
            old.launch(data.arguments)
            new = Kernel()
            new.launch(data.arguments)
            data.result()
            linked = Kernel()
            linked.library._linking_files = ("more.ptx",)
            linked.launch(data.arguments)
        assert [woven for _, woven, _ in gpu.fired] == [True, True, False]
        assert new.lineinfo
        assert any("several pieces" in text for text in prof.notes["vector_add"])
        old.launch(data.arguments)
        assert not gpu.fired[-1][1]
    assert (CUDACodeLibrary.get_cufunc, Kernel.__init__) == original
    assert not cuda_core.givers


class Handle(int):
    pass


def fake_bindings(gpu: FakeDriver) -> dict[str, dict[str, Any]]:
    def load(image: bytes) -> tuple[int, Handle]:
        return 0, Handle(gpu.plain(PTX, ""))

    def get(module: Any, name: bytes) -> tuple[int, Handle]:
        return 0, Handle(gpu.plain(PTX, name.decode()))

    def launch(f: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: Any, params: Any,
               extra: Any = 0) -> tuple[int]:  # fmt: skip
        sizes = gpu.parameter_sizes(int(f))
        if isinstance(params, tuple):
            values = [int(v) for v in params[0]]
        else:
            cells = (ctypes.c_void_p * len(sizes)).from_address(params)
            values = [
                int.from_bytes(ctypes.string_at(cell, size), "little") for cell, size in zip(cells, sizes, strict=True)
            ]
        gpu.launch(int(f), (gx, gy, gz), (bx, by, bz), values, shared, int(stream))
        return (0,)

    def create(source: bytes, name: bytes, count: int, headers: Any, names: Any) -> tuple[int, Handle]:
        return 0, Handle(next(gpu.handles))

    options: dict[int, list[bytes]] = {}

    def compile(program: Any, count: int, given: list[bytes]) -> tuple[int]:
        options[int(program)] = given
        return (0,)

    def fill(text: bytes) -> Callable[..., Any]:
        def get(program: Any, out: bytearray) -> tuple[int]:
            out[:] = text
            return (0,)

        return get

    nvrtc = {
        "nvrtcCreateProgram": create, "nvrtcAddNameExpression": lambda p, e: (0,), "nvrtcCompileProgram": compile,
        "nvrtcGetCUBIN": fill(b"\x7fELF code"), "nvrtcGetPTXSize": lambda p: (0, len(PTX)), "options": options,
        "nvrtcGetPTX": lambda program, out: ctypes.memmove(out, PTX.encode(), len(PTX)) and (0,),
        "nvrtcDestroyProgram": lambda p: (0,),
    }  # fmt: skip
    return {
        "cuda": {}, "cuda__bindings": {}, "cuda__bindings__nvrtc": nvrtc,
        "cuda__bindings__driver": {"cuModuleLoadData": load, "cuModuleGetFunction": get, "cuLaunchKernel": launch},
    }  # fmt: skip


def test_cuda_bindings_follow_a_kernel_from_its_source(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, attached: Any
) -> None:  # fmt: skip
    with modules(monkeypatch, **fake_bindings(gpu)) as made:
        drv, nvrtc, data = made["cuda.bindings.driver"], made["cuda.bindings.nvrtc"], Data(gpu)
        original = drv.cuLaunchKernel, nvrtc.nvrtcCompileProgram
        attached(cuda_bindings)

        def build() -> bytearray:
            program = nvrtc.nvrtcCreateProgram(b"source", b"mine.cu", 0, [], [])[1]
            nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90"])
            image = bytearray(10)
            nvrtc.nvrtcGetCUBIN(program, image)
            return image

        def function(image: Any) -> Any:
            return drv.cuModuleGetFunction(drv.cuModuleLoadData(image)[1], b"vector_add")[1]

        cells = [np.array([place], np.uint64) for place in data.places] + [np.array([100], np.int32)]
        table = np.array([cell.ctypes.data for cell in cells], np.uint64)
        values = ((*data.places, 100), (ctypes.c_void_p,) * 3 + (ctypes.c_int,))
        early = function(PTX.encode())
        with wl.profile(auto="all") as prof:
            for image in (PTX.encode(), build()):
                for params in (values, table.ctypes.data):
                    drv.cuLaunchKernel(function(image), 4, 1, 1, 32, 1, 1, 0, 3, params, 0)
                    data.result()
            drv.cuLaunchKernel(function(b"\x7fELF other"), 4, 1, 1, 32, 1, 1, 0, 3, values, 0)
            drv.cuLaunchKernel(early, 4, 1, 1, 32, 1, 1, 0, 3, values, 0)
            data.result()
            drv.cuModuleLoadData(object())
            drv.cuLaunchKernel(function(np.frombuffer(PTX.encode(), np.uint8)), 4, 1, 1, 32, 1, 1, 0, 3, values, 0)
            drv.cuLaunchKernel(function(PTX.encode()), 4, 1, 1, 32, 1, 1, shared=0, stream=3, params=values)
        assert [woven for _, woven, _ in gpu.fired] == [True] * 4 + [False] * 2 + [True, False]
        assert len([text for text in prof.notes["vector_add"] if "PTX" in text]) == 2
        assert any(b"-lineinfo" in given for given in nvrtc.options.values())
        assert (drv.cuLaunchKernel, nvrtc.nvrtcCompileProgram) == original


def test_a_handle_that_the_driver_gives_out_again_is_another_kernel(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, attached: Any
) -> None:  # fmt: skip
    """A module that is unloaded leaves its handles to the next one, which may hold other code by the same name."""
    parts, handle = fake_bindings(gpu), gpu.plain(PTX, "vector_add")
    parts["cuda__bindings__driver"]["cuModuleGetFunction"] = lambda module, name: (0, Handle(handle))
    with modules(monkeypatch, **parts) as made:
        drv, data = made["cuda.bindings.driver"], Data(gpu)
        attached(cuda_bindings)
        values = ((*data.places, 100), (ctypes.c_void_p,) * 3 + (ctypes.c_int,))
        with wl.profile(auto="all"):
            for opcode, expected in (("add", data.a + data.b), ("sub", data.b - data.a)):
                text = PTX.replace("add.f32", f"{opcode}.f32")
                gpu.kernels[handle] = text, "vector_add"
                function = drv.cuModuleGetFunction(drv.cuModuleLoadData(text.encode())[1], b"vector_add")[1]
                drv.cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, 3, values, 0)
                left = gpu.space.read(data.places[2], np.float32, 100)
                np.testing.assert_array_equal(np.abs(left), np.abs(expected))
    assert [woven for _, woven, _ in gpu.fired] == [True, True]
