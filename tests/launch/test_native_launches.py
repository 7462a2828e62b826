"""Launches that are made in C: nothing is handed out twice, nothing is lost, and the order is that of the program."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting_device import GRID, KERNEL, Counting
from warplens.driver import libcuda
from warplens.driver.call_hooks import CallHooks, hook_library
from warplens.driver.kernel_arguments import Shape
from warplens.launch.buffers import Buffers
from warplens.launch.collected_run import CollectedRun
from warplens.launch.native_launches import NativeTarget
from warplens.launch.variant import Variant, Variants
from warplens.options import Options

pytestmark = pytest.mark.skipif(hook_library()[0] is None, reason="needs a C compiler")

_LAUNCH_EX = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_ANSWER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
TWIN, PARAMETERS = 77, 2


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint64),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_uint32),
    )  # fmt: skip


class Scene:
    """A session's memory, variants by the handles of their kernels, and a program that launches by configurations."""

    def __init__(self, hooks: CallHooks, gpu: Counting, variants: int = 2) -> None:
        self.hooks, self.gpu = hooks, gpu
        options = Options(records_per_warp=16)
        self.run, self.variants = CollectedRun(), Variants(options, 0)
        self.buffers = Buffers(self.run, options, self.variants)
        self.buffers.open_shelves(for_launches=True)
        self.known = {4096 + 64 * number: Variant(f"k{number}", dict) for number in range(variants)}
        self.made: list[int] = []
        """The pointers of the launches that were made, in order."""
        self.refuse = 0
        self._missed = threading.local()
        """Launches that were left to Python, by the thread that made them: threads launch at the same time."""
        self._calls: Any = (_LAUNCH_EX(self._launch_ex), _ANSWER(self._answer))
        hooks.use(gpu.launch_calls())
        address = ctypes.cast(self._calls[0], ctypes.c_void_p).value or 0
        self.launcher = _ANSWER(hooks.answer_configs(self._calls[1], self._calls[1], address))

    def _launch_ex(self, config: int, function: int, params: int, extra: int) -> int:
        if self.refuse:
            self.refuse -= 1
            return 701
        places = (ctypes.c_void_p * (PARAMETERS + 1)).from_address(params)
        assert function == TWIN
        assert [ctypes.c_uint64.from_address(at).value for at in places[:PARAMETERS]] == [5, 6]
        self.made.append(ctypes.c_uint64.from_address(places[PARAMETERS]).value)
        return 0

    def _answer(self, config: int, kernel: int, params: int) -> int:
        self._missed.count = self._missed_here() + 1
        return 0

    def _missed_here(self) -> int:
        return getattr(self._missed, "count", 0)

    def offer(self, handle: int, ahead: int, *, more: bool = False) -> None:
        """Make one launch in Python and have some more at hand; or only have more."""
        variant = self.known[handle]
        if more:
            self.buffers.lend_more(KERNEL, variant, GRID, ahead)
        else:
            if variant.ready is not None:
                variant.ready.unshelve()
            self.variants.count_made(variant)
            launch = self.buffers.lend(KERNEL, variant, GRID, 9, ahead=ahead)
            assert launch is not None
            self.made.append(launch.pointer)
            launch.launched()
        target = NativeTarget(handle, Shape(GRID, (64, 1, 1), 0, 9), TWIN, PARAMETERS)
        self.buffers.shelve(KERNEL, variant, target)

    def launch(self, handle: int, stream: int = 9, grid: tuple[int, int, int] = GRID) -> bool:
        """Whether a launch was made without Python."""
        config = _Config((ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(64, 1, 1), 0, stream)
        cells = [ctypes.c_uint64(5), ctypes.c_uint64(6)]
        params = (ctypes.c_void_p * 2)(*map(ctypes.addressof, cells))
        before = self._missed_here()
        assert self.launcher(ctypes.addressof(config), handle, ctypes.addressof(params)) == 0
        return self._missed_here() == before

    def end(self) -> None:
        """Every launch that was made comes home, in order and once; all memory is given back."""
        self.buffers.open_shelves(for_launches=False)
        self.buffers.end_threads()
        pending = [one for one, _ in self.run.launches_so_far()]
        assert [one.pointer for one in pending] == self.made  # type: ignore[attr-defined]
        assert sum(variant.recorded for variant in self.known.values()) == len(self.made)
        launches, problems = self.run.collect()
        assert (len(launches), problems) == (len(self.made), [])
        self.buffers.give_back()
        assert all(engine.in_use == 0 for engine in self.buffers.engines())
        self.hooks.answer_configs(None, None, 0)


@pytest.fixture(name="hooks")
def _hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    gpu, (hooks, _) = Counting(), hook_library()
    assert hooks is not None
    monkeypatch.setattr(libcuda, "driver", lambda: gpu)
    yield SimpleNamespace(hooks=hooks, gpu=gpu)
    hooks.answer_configs(None, None, 0)


_HANDLES = st.sampled_from([4096, 4160])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), _HANDLES, st.integers(0, 6)),
        st.tuples(st.just("more"), _HANDLES, st.integers(0, 9)),
        st.tuples(st.just("launch"), _HANDLES, st.integers(1, 5)),
        st.tuples(st.sampled_from(["fetch", "give back", "refuse", "forget"]), _HANDLES, st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(_STEPS)
def test_whatever_happens_each_launch_has_its_own_memory_and_comes_home(steps: list[tuple[str, int, int]]) -> None:
    gpu, (hooks, _) = Counting(), hook_library()
    assert hooks is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libcuda, "driver", lambda: gpu)
        scene = Scene(hooks, gpu)
        for what, handle, count in steps:
            if what in ("offer", "more"):
                scene.offer(handle, count, more=what == "more")
            elif what == "launch":
                for _ in range(count):
                    scene.launch(handle)
            elif what == "fetch":
                scene.run.fetch()
            elif what == "give back":
                scene.buffers.give_back()
            elif what == "refuse":
                scene.refuse = 1
                assert not scene.launch(handle) or not scene.refuse
                scene.refuse = 0
            else:
                hooks.reopen_function(handle)
        scene.end()


def test_launches_are_made_in_c_until_memory_runs_out(hooks: SimpleNamespace) -> None:
    scene = Scene(hooks.hooks, hooks.gpu)
    scene.offer(4096, 3)
    assert [scene.launch(4096) for _ in range(5)] == [True] * 3 + [False] * 2
    scene.offer(4096, 2)
    assert scene.launch(4096)
    scene.end()


def test_other_shapes_contexts_and_captured_streams_are_left_to_python(hooks: SimpleNamespace) -> None:
    scene = Scene(hooks.hooks, hooks.gpu)
    scene.offer(4096, 3)
    assert not scene.launch(4096, grid=(5, 1, 1))
    assert not scene.launch(4160)
    graph = hooks.gpu.graphs.begin(9)
    assert not scene.launch(4096)
    assert scene.launch(4096, stream=11), "another stream is not captured"
    hooks.gpu.graphs.end(graph)
    hooks.gpu.current = 2
    assert not scene.launch(4096)
    hooks.gpu.current = 1
    hooks.hooks.suspend_ready(1)
    assert not scene.launch(4096), "a compiler may be timing kernels"
    hooks.hooks.suspend_ready(-1)
    assert scene.launch(4096)
    scene.end()


def test_an_event_that_fails_is_the_profiles_problem(hooks: SimpleNamespace) -> None:
    scene = Scene(hooks.hooks, hooks.gpu)
    scene.offer(4096, 2)
    hooks.gpu.refuses = True
    assert scene.launch(4096)
    hooks.gpu.refuses = False
    scene.buffers.open_shelves(for_launches=False)
    _, problems = scene.run.collect()
    assert problems == ["kernel gemm: cuEventRecord failed (CUDA error 700)"]


def test_threads_share_a_shelf(hooks: SimpleNamespace) -> None:
    scene = Scene(hooks.hooks, hooks.gpu)
    scene.offer(4096, 40)
    counts: list[int] = []

    def work() -> None:
        counts.append(sum(scene.launch(4096) for _ in range(20)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 40
    assert len(set(scene.made)) == 41
    scene.made.sort(key=[one.pointer for one, _ in scene.run.launches_so_far()].index)  # type: ignore[attr-defined]
    scene.end()


def test_threads_that_are_first_share_what_makes_launches(
    hooks: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(hooks.hooks, hooks.gpu)
    both, made = threading.Barrier(2), list[object]()

    class Shelves:
        """Stands for the launches of the session, and takes as long to be made as another thread needs to ask."""

        @staticmethod
        def of(*given: object) -> object:
            made.append(object())
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.2)
            return made[-1]

    monkeypatch.setattr("warplens.launch.buffers.NativeLaunches", Shelves)
    taken: list[object] = []
    ready = SimpleNamespace(shelve=lambda native, kernel, target: taken.append(native))
    variants = [SimpleNamespace(ready=ready, closed=False) for _ in range(2)]
    threads = [threading.Thread(target=scene.buffers.shelve, args=(KERNEL, variant, None)) for variant in variants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scene.buffers._native = None
    assert len(made) == 1
    assert taken == made * 2
