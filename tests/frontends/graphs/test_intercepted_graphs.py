"""Kernels of CuPy, cuda.core and cuda.bindings in CUDA graphs: each replay is a launch with records of its own."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warplens as wl
from tests.support.attached import attached
from tests.support.contexts import StreamGraph
from tests.support.fake_driver import FakeDriver, fake_cupy, fake_driver, modules
from tests.support.replays import places, spans_by_launch
from tests.support.vector_add_launch import BLOCK, GRID, PTX, Data
from warplens.frontends import cupy
from warplens.frontends.graphs import cuda_bindings_graphs, cuda_core_graphs
from warplens.trace.schema import LIFE

STREAM = 7


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return fake_driver(monkeypatch)


class CupyGraphs:
    """CuPy's stream and graph on the fake driver."""

    def __init__(self, gpu: FakeDriver) -> None:
        graphs: dict[int, StreamGraph] = {}

        class Graph:
            def __init__(self, captured: StreamGraph) -> None:
                self.graphExec = captured.number + 1000
                graphs[self.graphExec] = captured

            def launch(self, stream: Any = None) -> None:
                graphs[self.graphExec].replay()

        class _BaseStream:
            ptr = STREAM

            def begin_capture(self, mode: Any = None) -> None:
                self.captured = gpu.graphs.begin(self.ptr)

            def end_capture(self) -> Graph:
                gpu.graphs.end(self.captured)
                return Graph(self.captured)

        self.Graph, self.Stream = Graph, _BaseStream


@pytest.fixture
def library(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CuPy: `kernel` makes a RawKernel, `Stream` captures."""
    made = CupyGraphs(gpu)
    parts = fake_cupy(gpu, PTX)
    parts |= {"cupy__cuda__graph": {"Graph": made.Graph}, "cupy__cuda__stream": {"_BaseStream": made.Stream}}
    with modules(monkeypatch, **parts) as found:
        cupy._classes.cache_clear()
        cupy._compile.cache_clear()
        with attached("cupy"):
            yield SimpleNamespace(kernel=found["cupy"].RawKernel, Stream=made.Stream)
    cupy._classes.cache_clear()


def test_replays_of_a_cupy_graph(gpu: FakeDriver, library: Any) -> None:
    data, kernel, stream = Data(gpu), library.kernel("source", "vector_add"), library.Stream()
    kernel(GRID, BLOCK, data.arguments)
    with wl.profile(auto="all") as profile:
        kernel(GRID, BLOCK, data.arguments)
        stream.begin_capture()
        for _ in range(2):
            kernel(GRID, BLOCK, data.arguments, stream=stream)
        graph = stream.end_capture()
        for _ in range(5):
            data.gpu.space.write(data.places[2], np.zeros(100, np.float32))
            graph.launch()
            data.result()
    assert places(profile.trace) == [(None, None), *[(0, 0), (0, 1)] * 5]
    spans = spans_by_launch(profile.trace)
    assert all(one == spans[0] for one in spans)
    graph.launch()
    data.result()
    with wl.profile(auto="all") as later:
        kernel(GRID, BLOCK, data.arguments)
        graph.launch(stream)
    assert places(later.trace) == [(None, None)], "the driver may have given the handle to another graph"
    assert "not captured inside the profile" in later.notes["CUDA graphs"][0]


def test_a_kernel_that_is_refused_is_captured_plain(gpu: FakeDriver, library: Any) -> None:
    data, kernel, stream = Data(gpu), library.kernel("source", "vector_add"), library.Stream()
    kernel(GRID, BLOCK, data.arguments)
    gpu.broken = True
    profile = wl.profile(auto="all")
    with pytest.raises(wl.WarplensError, match="profiled|nothing"), profile:
        stream.begin_capture()
        kernel(GRID, BLOCK, data.arguments, stream=stream)
        graph = stream.end_capture()
        graph.launch()
    data.result()
    assert not gpu.fired[-1][1]
    assert "does not assemble" in profile.notes["vector_add"][0]


def test_of_a_kernel_that_marks_would_harm_each_replay_has_the_lives_of_its_warps(
    gpu: FakeDriver, library: Any
) -> None:
    data, kernel, stream = Data(gpu), library.kernel("source", "vector_add"), library.Stream()
    kernel(GRID, BLOCK, data.arguments)
    gpu.local = {False: 0, True: 64}
    with wl.profile(auto="all") as profile:
        stream.begin_capture()
        kernel(GRID, BLOCK, data.arguments, stream=stream)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch()
    data.result()
    assert "spills 64 more bytes" in profile.notes["vector_add"][0]
    assert places(profile.trace) == [(0, 0)] * 3
    lives = Counter({(LIFE, "span", block, 0): 1 for block in range(GRID[0])})
    assert spans_by_launch(profile.trace) == [lives] * 3


def test_the_quota_counts_replays(gpu: FakeDriver, library: Any) -> None:
    data, kernel, stream = Data(gpu), library.kernel("source", "vector_add"), library.Stream()
    kernel(GRID, BLOCK, data.arguments)
    with wl.profile(auto="all", launches=3, skip=0) as profile:
        stream.begin_capture()
        kernel(GRID, BLOCK, data.arguments, stream=stream)
        graph = stream.end_capture()
        for _ in range(10):
            graph.launch()
    assert len(profile.trace.meta.launches) == 3
    assert profile.seen == {"vector_add": 10}


class Status(int):
    """The driver's status, as the first of what its functions return."""


def bindings_on(gpu: FakeDriver, prefix: str) -> dict[str, Any]:
    """As much of cuda.bindings as captures and replays need."""
    captured: dict[int, StreamGraph] = {}

    def begin(stream: int, mode: int) -> tuple[int]:
        captured[stream] = gpu.graphs.begin(stream)
        return (Status(0),)

    def end(stream: int) -> tuple[int, int]:
        graph = captured.pop(stream)
        gpu.graphs.end(graph)
        captured[graph.number] = graph
        return Status(0), graph.number

    def instantiate(graph: int, flags: int) -> tuple[int, int]:
        captured[graph + 5000] = captured[graph]
        return Status(0), graph + 5000

    def launch(executable: int, stream: int) -> tuple[int]:
        captured[executable].replay()
        return (Status(0),)

    functions = {
        "StreamBeginCapture": begin,
        "StreamEndCapture": end,
        "GraphInstantiate": instantiate,
        "GraphLaunch": launch,
    }
    return {prefix + name: function for name, function in functions.items()}


@pytest.mark.parametrize("prefix", ["cu", "cuda"])
def test_replays_through_the_functions_of_cuda_bindings(
    gpu: FakeDriver, library: Any, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    data, kernel = Data(gpu), library.kernel("source", "vector_add")
    bindings = ModuleType("fake_bindings")
    vars(bindings).update(bindings_on(gpu, prefix))
    monkeypatch.setitem(sys.modules, "fake_bindings", bindings)
    before = dict(vars(bindings))
    kernel(GRID, BLOCK, data.arguments)
    with wl.profile(auto="all") as profile:
        undo = cuda_bindings_graphs.follow(profile, bindings, prefix)

        def call(name: str, *arguments: Any) -> Any:
            return vars(bindings)[prefix + name](*arguments)

        call("StreamBeginCapture", STREAM, 0)
        kernel(GRID, BLOCK, data.arguments, stream=SimpleNamespace(ptr=STREAM))
        _, graph = call("StreamEndCapture", STREAM)
        _, executable = call("GraphInstantiate", graph, 0)
        for _ in range(3):
            call("GraphLaunch", executable, STREAM)
            data.result()
        for one in undo:
            one()
    assert places(profile.trace) == [(0, 0)] * 3
    assert dict(vars(bindings)) == before


def test_cuda_cores_own_classes_are_followed_and_left_as_they_were() -> None:
    graph_module = pytest.importorskip("cuda.core.graph", reason="cuda.core is not installed")
    graph, builder = graph_module.Graph, graph_module.GraphBuilder
    methods = {"launch": graph, "update": graph, "begin_building": builder, "complete": builder}
    before = {name: owner.__dict__[name] for name, owner in methods.items()}
    with pytest.raises(TypeError, match="immutable"):
        graph.launch = None
    undo = cuda_core_graphs.install(wl.profile())
    try:
        for name, owner in methods.items():
            assert owner.__dict__[name] is not before[name]
            assert getattr(owner, name).__name__ == name
    finally:
        for one in undo:
            one()
    assert {name: owner.__dict__[name] for name, owner in methods.items()} == before


def test_replays_of_a_cuda_core_graph(gpu: FakeDriver, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executables: dict[int, StreamGraph] = {}

    class Graph:
        def __init__(self, captured: StreamGraph) -> None:
            self.handle = captured.number
            executables[self.handle] = captured

        def update(self, builder: Any) -> None:
            executables[self.handle] = builder.captured

        def launch(self, stream: Any) -> None:
            executables[self.handle].replay()

    class GraphBuilder:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, STREAM

        def begin_building(self, mode: str = "relaxed") -> Any:
            self.captured = gpu.graphs.begin(STREAM)
            return self

        def complete(self) -> Graph:
            gpu.graphs.end(self.captured)
            return Graph(self.captured)

    module = ModuleType("cuda.core.graph")
    module.Graph, module.GraphBuilder = Graph, GraphBuilder
    monkeypatch.setitem(sys.modules, "cuda.core.graph", module)
    data, kernel = Data(gpu), library.kernel("source", "vector_add")
    kernel(GRID, BLOCK, data.arguments)
    with wl.profile(auto="all") as profile:
        built = []
        for count in (1, 2):
            builder = GraphBuilder().begin_building()
            for _ in range(count):
                kernel(GRID, BLOCK, data.arguments, stream=SimpleNamespace(ptr=STREAM))
            built.append((builder, builder.complete()))
        (_, first), (other, second) = built
        first.launch(SimpleNamespace(handle=STREAM))
        second.launch(SimpleNamespace(handle=STREAM))
        first.update(other)
        first.launch(SimpleNamespace(handle=STREAM))
        data.result()
    assert places(profile.trace) == [(0, 0), (1, 0), (1, 1), (1, 0), (1, 1)]
