"""Automatic marks in CuTe DSL kernels: the DSL compiles and calls for real, and what it launches is the woven twin."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.attached import attached
from tests.support.cute_gpu import compile_cute

# isort: split
from cutlass import Int64, cute
from cutlass.base_dsl.jit_executor import JitExecutor
from cutlass.cutlass_dsl import CuTeDSL

import warplens as wl
import warplens.cute as wlc
from tests.support import cute_runtime
from tests.support.cute_auto_kernels import N, Shift, both, pointer, run_marked
from tests.support.cute_runtime import Runtime
from warplens.analyse.kernel_list import list_kernels
from warplens.driver.call_hooks import hook_library
from warplens.errors import WarplensError
from warplens.frontends.cute import automatic as intercepted
from warplens.frontends.cute import host_code
from warplens.frontends.cute.ptx_keeper import PtxKeeper
from warplens.frontends.intercept.interceptor import Interceptor
from warplens.launch import native_launches
from warplens.launch.timing import TIMED_LAUNCHES
from warplens.profiling.profile import Profile
from warplens.trace.schema import LIFE

COUNT = 200


@pytest.fixture(autouse=True)
def _attached() -> Iterator[None]:
    with attached("cutlass.cutlass_dsl"):
        yield


@pytest.fixture(name="cuda")
def _cuda(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return cute_runtime.install(monkeypatch)


class Data:
    """Arguments of a `Shift`, and what it leaves in y."""

    def __init__(self, cuda: Runtime) -> None:
        self.space = cuda.gpu.space
        self.x = self.space.alloc(np.linspace(0, 1, N, dtype=np.float32))
        self.y = self.space.alloc(np.zeros(N, np.float32))
        self.arguments = pointer(self.x), pointer(self.y), COUNT

    def result(self) -> bytes:
        """What is in y, which is then empty again."""
        found = self.space.read(self.y, np.uint8, 4 * N).tobytes()
        self.space.write(self.y, np.zeros(N, np.float32))
        return found


def plain_result(cuda: Runtime, data: Data) -> bytes:
    """What the plain kernels leave, whose PTX the runtime knows from now on."""
    compiled = cuda.know(compile_cute(Shift(3.0), *data.arguments))
    compiled(*data.arguments)
    assert [woven for _, woven, _ in cuda.gpu.fired] == [False, False]
    cuda.gpu.fired.clear()
    return data.result()


def woven(cuda: Runtime) -> list[bool]:
    found = [is_woven for _, is_woven, _ in cuda.gpu.fired]
    cuda.gpu.fired.clear()
    return found


def by_call(shift: Any, data: Data) -> Callable[[], Any]:
    return lambda: shift(*data.arguments)


def by_compile(shift: Any, data: Data) -> Callable[[], Any]:
    compiled = cute.compile(shift, *data.arguments)
    return lambda: compiled(*data.arguments)


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The kernels whose launches Python was asked about."""
    asked: list[int] = []
    decide = intercepted.Cute._launch

    def counting(cute: Any, config: int, kernel: int, arguments: int) -> int:
        asked.append(kernel)
        return decide(cute, config, kernel, arguments)

    monkeypatch.setattr(intercepted.Cute, "_launch", counting)
    return asked


@pytest.mark.parametrize("compiler", [True, False])
def test_recorded_launches_need_no_python_while_memory_is_at_hand(
    cuda: Runtime, asked: list[int], compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler and hook_library()[0] is None:
        pytest.skip("needs a C compiler")
    if not compiler:
        monkeypatch.setattr(intercepted, "hook_library", lambda: (None, "none"))
        monkeypatch.setattr(native_launches, "load_hooks", lambda: (None, "none"))
    data = Data(cuda)
    plain = plain_result(cuda, data)
    with wl.profile(auto="loads,stores", records_per_warp=16) as profile:
        launch = by_compile(Shift(3.0), data)
        for _ in range(12):
            launch()
            assert data.result() == plain
    assert profile.seen == {"scale": 12, "Shift.kernel": 12}
    assert woven(cuda) == [True] * 24
    kernels = [one.kernel for one in profile.trace.launches]
    assert kernels == ["scale", "Shift.kernel"] * 12
    assert len(asked) == (2 if compiler else 24)


@pytest.mark.skipif(hook_library()[0] is None, reason="needs a C compiler")
def test_launches_that_are_done_with_need_no_python_and_are_counted(cuda: Runtime, asked: list[int]) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)
    for _ in range(2):
        asked.clear()
        with wl.profile(auto="loads,stores", launches=1) as profile:
            launch = by_compile(Shift(3.0), data)
            for _ in range(20):
                launch()
                assert data.result() == plain
        assert profile.seen == {"scale": 20, "Shift.kernel": 20}
        assert woven(cuda) == [True] * 2 + [False] * 38
        assert len(profile.trace.launches) == 2
        # One is recorded, some plain ones are timed, and the next one finds that nothing is left to do.
        assert len(asked) == 2 * (2 + TIMED_LAUNCHES)
    launch()
    assert data.result() == plain


@pytest.mark.parametrize("how", [by_call, by_compile])
def test_what_is_compiled_inside_a_profile_runs_marked_with_the_same_result(cuda: Runtime, how: Any) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)
    methods = JitExecutor.run_compiled_program, CuTeDSL._func, CuTeDSL.mangle_name
    with wl.profile(auto="loads,stores") as profile:
        launch = how(Shift(3.0), data)
        for _ in range(2):
            launch()
            assert data.result() == plain
    trace = profile.trace
    assert profile.seen == {"scale": 2, "Shift.kernel": 2}
    assert not profile.notes
    rows = list_kernels({symbol: [5] for symbol, _, _ in cuda.gpu.fired}, profile.seen, {})
    assert {(row.kernel, row.markable) for row in rows} == {("scale", True), ("Shift.kernel", True)}
    assert woven(cuda) == [True] * 4
    (source,) = {Path(where.rpartition(":")[0]) for where in trace.meta.locations.values()}
    assert source.name == "cute_auto_kernels.py"
    lines = {text: number for number, text in enumerate(source.read_text().splitlines(), 1)}
    at = {word: next(n for text, n in lines.items() if text.endswith(f"# the {word}")) for word in ("load", "store")}
    rows = trace.select(kernel="scale").spans.to_pylist()
    marked = {f"{word} cute_auto_kernels.py:{line}" for word, line in at.items()}
    assert {row["region"] for row in rows} == {*marked, LIFE}
    # Both warps of the three full blocks, and one of the fourth, which has 8 elements left; the other has only lived.
    alive = {(row["launch"], row["block"], row["warp"]) for row in rows if row["region"] == LIFE}
    assert [(block, warp) for _, block, warp in sorted(alive)] == [(3, 1), (3, 1)]
    assert len({(row["launch"], row["block"], row["warp"]) for row in rows} - alive) == 2 * 7
    # Behind the profile nothing is left of it.
    assert methods == (JitExecutor.run_compiled_program, CuTeDSL._func, CuTeDSL.mangle_name)
    launch()
    assert data.result() == plain
    assert woven(cuda) == [False, False]
    # The PTX stays with the function: the next profile marks it as it is.
    if how is by_compile:
        with wl.profile(auto="stores", kernels="Shift.*") as again:
            launch()
        assert data.result() == plain
        assert woven(cuda) == [False, True]
        assert {row["kernel"] for row in again.trace.spans.to_pylist()} == {"Shift.kernel"}


@pytest.mark.parametrize("can_be_made", [True, False])
def test_a_folder_of_kept_ptx_that_is_deleted_meanwhile(
    cuda: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, can_be_made: bool
) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    profile = Profile(auto="stores")
    with nullcontext() if can_be_made else pytest.raises(WarplensError, match="could not write its PTX to"), profile:
        (folder,) = tmp_path.glob("warplens-cute-*")
        folder.rmdir()
        if not can_be_made:
            folder.write_text("not a folder")
        by_compile(Shift(3.0), data)()
        assert data.result() == plain
    assert woven(cuda) == [can_be_made] * 2
    assert bool(profile.notes) != can_be_made


def test_all_accounts_for_the_life_of_each_warp(cuda: Runtime) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)
    with wl.profile(auto="all") as profile:
        by_call(Shift(3.0), data)()
    assert data.result() == plain
    assert {info.kernel for info in profile.trace.meta.launches} == {"scale", "Shift.kernel"}
    assert min(info.covered["least"] for info in profile.trace.meta.launches) >= 0.9


def test_what_the_program_asks_of_the_compiler_stays_as_it_is(
    cuda: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Data(cuda)
    plain_result(cuda, data)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with wl.profile(auto="stores"):
        (ours,) = tmp_path.iterdir()
        options = f"--keep-ptx --dump-dir={tmp_path}"
        cute.compile(Shift(3.0), *data.arguments, options=options)(*data.arguments)
        assert not list(ours.iterdir())
        Shift(4.0)(*data.arguments)
        assert len(list(ours.iterdir())) == 1
        assert not cuda.cached, "the DSL's cache on disk is left alone"
    assert not ours.exists()
    assert len(list(tmp_path.glob("*.ptx"))) == 1
    assert woven(cuda) == [True] * 4
    later = cute.compile(Shift(3.0), *data.arguments)
    assert later.__ptx__ is None
    Shift(5.0)(*data.arguments)
    assert cuda.cached


def test_a_kernel_without_its_ptx_is_listed_with_the_reason(cuda: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)
    before = cute.compile(Shift(3.0), *data.arguments)
    with pytest.raises(WarplensError, match=r"no automatic mark could be placed in those that ran: .*Shift"):
        with wl.profile(auto="all") as profile:
            before(*data.arguments)
    assert data.result() == plain
    assert woven(cuda) == [False, False]
    assert list(profile.seen.values()) == [1, 1]
    for said in profile.notes.values():
        assert len(said) == 1
        assert said[0].startswith("runs unmarked: it was compiled before the profile began")
    assert "--keep-ptx" in capsys.readouterr().err
    with pytest.raises(WarplensError, match="strict=True allows no unmarked kernel"):
        with wl.profile(auto="all", strict=True):
            before(*data.arguments)
    assert woven(cuda) == []


def test_marks_by_hand_are_kept_and_not_doubled(cuda: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    data = Data(cuda)
    prof = wlc.buffer(grid=1, block=64)
    cuda.know(compile_cute(both, *data.arguments, Int64(0)))
    with wl.profile(auto="stores") as profile:
        compiled = cute.compile(both, *data.arguments, Int64(0))
        compiled(*data.arguments, Int64(prof.address()))
    assert woven(cuda) == [True, False]
    regions = {(row["kernel"], row["region"].split()[0]) for row in profile.trace.spans.to_pylist()}
    assert regions - {("scale", LIFE)} == {("scale", "store"), ("marked", "by")}
    # A function that brings its buffer is never spoken of, whether its PTX is there or not.
    cuda.know(compile_cute(run_marked, data.arguments[1], prof))
    before = cute.compile(run_marked, data.arguments[1], prof)
    with wl.profile(auto="all") as profile:
        before(data.arguments[1], prof)
    assert {row["region"] for row in profile.trace.spans.to_pylist()} == {"by hand"}
    assert not profile.notes
    assert capsys.readouterr().err == ""


def test_an_error_inside_a_launch_comes_out_as_it_is(cuda: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data(cuda)
    plain_result(cuda, data)

    def broken(*arguments: Any) -> int:
        raise WarplensError("cuLaunchKernelEx failed: out of memory (CUDA error 2)")

    monkeypatch.setattr(cuda.gpu, "launch_config", broken)
    with pytest.raises(WarplensError, match="CUDA error 2"):
        with wl.profile(auto="stores"):
            Shift(3.0)(*data.arguments)


def test_host_code_that_cannot_be_built_twice_leaves_its_kernels_listed(
    cuda: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)

    def refuses(*arguments: Any) -> None:
        raise host_code.Unavailable("its host code cannot be built a second time: no")

    monkeypatch.setattr(intercepted, "Host", type("Host", (), {"__init__": refuses}))
    with pytest.raises(WarplensError, match="no automatic mark could be placed"):
        with wl.profile(auto="stores") as profile:
            Shift(3.0)(*data.arguments)
    assert data.result() == plain
    assert profile.seen == {"scale": 1, "Shift.kernel": 1}
    assert profile.notes["scale"] == ["runs unmarked: its host code cannot be built a second time: no"]


def test_functions_called_past_python_are_listed_when_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("TVMFFIJitCompiledFunction", (), {"__module__": "cutlass.cutlass_dsl.tvm_ffi_provider"})
    function = kind()
    function.kernel_info = {"kernel_cutlass_attention_None_0": {}}
    profile = Profile(auto="all")
    found = intercepted.Cute(Interceptor(profile))
    options, envar = SimpleNamespace(), SimpleNamespace(disable_file_caching=False)
    dsl = SimpleNamespace(compile_options=options, envar=envar)
    found._keeper.compiled = found._hand_over
    monkeypatch.setattr(PtxKeeper, "_installed", [found._keeper])
    assert found._keeper._compiler(lambda *arguments: function)(dsl) is function
    found._stop()
    assert (dsl.compile_options, envar.disable_file_caching) == (options, False)
    assert profile.seen == {"attention_None": 1}
    assert "it is called by TVM-FFI, past Python" in profile.notes["attention_None"][0]


def test_automatic_regions_are_delayed(cuda: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data(cuda)
    plain = plain_result(cuda, data)
    monkeypatch.setattr(cuda.gpu, "event", lambda stream: next(cuda.gpu.handles))
    monkeypatch.setattr(cuda.gpu, "elapsed_ns", lambda first, second: 1000.0)
    launch = []

    def run() -> bytes:
        launch[:] = launch or [by_compile(Shift(3.0), data)]
        launch[0]()
        return data.result()

    found = wl.sensitivity(run, kernels="scale", auto="stores", rounds=3, records_per_warp=64)
    (one,) = found.regions
    assert (one.kernel, one.region.split()[0], one.slope) == ("scale", "store", 0.0), "the fake clock stands still"
    assert one.launches == 18
    assert found.results == "identical"
    assert run() == plain
    delayed = {text for text, symbol in cuda.gpu.kernels.values() if "$wl_spin" in text}
    assert delayed
