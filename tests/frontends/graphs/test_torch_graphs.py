"""Triton kernels in PyTorch's CUDA graphs: each replay is a launch with records of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

triton = pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl  # noqa: E402
from tests.support.contexts import GraphLaunch  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.fake_torch_graphs import TorchGraphs  # noqa: E402
from tests.support.replays import places, spans_by_launch  # noqa: E402
from tests.support.stepped_kernel import plain, run, stepped  # noqa: E402
from warplens.errors import WarplensError  # noqa: E402
from warplens.launch.captured_graphs import captured_graphs  # noqa: E402
from warplens.launch.engine import Engine  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGpu]:
    # One cache for all tests: what is compiled depends on nothing that they change.
    cache: Path = tmp_path_factory.getbasetemp() / "graph-kernels"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    with fake_gpu(monkeypatch, stepped, plain) as fake:
        yield fake


@pytest.fixture
def torch(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> TorchGraphs:
    graphs = TorchGraphs(gpu.driver, gpu.stream)
    graphs.install(monkeypatch)
    # A program loads its kernels before it captures them.
    for steps in (1, 2):
        run(gpu, steps=steps)
    gpu.fired.clear()
    return graphs


def captured(torch: TorchGraphs, gpu: FakeGpu, *launches: dict[str, int]) -> tuple[Any, list[Any]]:
    """A graph of these launches, and the target of each."""
    graph = torch.CUDAGraph()
    with torch.capturing(graph):
        targets = [run(gpu, **options)[1] for options in launches or ({},)]
    return graph, targets


def cells_of(gpu: FakeGpu) -> list[int]:
    """What all cells of all graphs hold."""
    graphs = captured_graphs(gpu.driver)._graphs.values()
    addresses = [graph.cell(node.number) for graph in graphs for node in graph.nodes]
    return [int(gpu.space.read(address, np.uint64, 1)[0]) for address in addresses]


def test_200_replays_are_kept_apart(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile() as profile:
        run(gpu, blocks=1, steps=2)
        graph, (target,) = captured(torch, gpu, {"blocks": 1, "steps": 2})
        for _ in range(200):
            graph.replay()
    spans = spans_by_launch(profile.trace)
    assert len(spans) == 201
    assert all(one == spans[0] for one in spans), "each replay has the spans of an eager launch"
    assert places(profile.trace) == [(None, None), *[(0, 0)] * 200]
    np.testing.assert_array_equal(target.numpy(), np.arange(128, dtype=np.float32) * 2 + 1)
    assert not any(cells_of(gpu)), "a replay that nobody follows finds no buffer"


def test_capturing_records_nothing_and_uses_up_no_quota(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile(launches=2, skip=0) as profile:
        graph, _ = captured(torch, gpu, {}, {})
        assert profile.seen == {"stepped": 0}
        graph.replay()
        assert profile.seen == {"stepped": 2}
        graph.replay()
        uploads = gpu.driver.uploads
        graph.replay()
        assert gpu.driver.uploads == uploads == 1, "replays beyond the quota copy nothing"
    assert places(profile.trace) == [(0, 0), (0, 1)]
    assert profile.seen == {"stepped": 6}


def woven(gpu: FakeGpu) -> list[bool]:
    """Which of the kernels that ran were woven."""
    found = ["@woven" in one.ptx for one in gpu.fired]
    gpu.fired.clear()
    return found


@pytest.mark.parametrize("keep", [False, True])
def test_replays_beyond_the_quota_run_the_plain_function(gpu: FakeGpu, torch: TorchGraphs, keep: bool) -> None:
    with wl.profile(launches=3, skip=0) as profile:
        graph = torch.CUDAGraph(keep_graph=keep)
        with torch.capturing(graph):
            for _ in range(2):
                _, target = run(gpu)
        assert graph.executable is not keep, "torch makes a graph executable at once unless it is asked to keep it"
        for _ in range(4):
            graph.replay()
        assert woven(gpu) == [True] * 4 + [False] * 4
        target.space.write(target.address, np.zeros(384, np.float32))
        graph.replay()
        np.testing.assert_array_equal(target.numpy(), np.arange(384, dtype=np.float32) * 2 + 3)
    assert len(profile.trace.meta.launches) == 3
    assert not profile.notes
    with wl.profile() as again:
        graph.replay()
    woven(gpu)
    graph.replay()
    assert places(again.trace) == [(0, 0), (0, 1)], "a later profile gets the woven functions back"
    assert woven(gpu) == [False, False], "and leaves plain ones behind"


def test_with_an_older_torch_the_woven_function_stays_and_the_user_is_told(
    gpu: FakeGpu, torch: TorchGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = TorchGraphs(gpu.driver, gpu.stream, raw=False)
    torch.install(monkeypatch)
    with wl.profile(launches=1, skip=0) as profile:
        graph, _ = captured(torch, gpu)
        for _ in range(3):
            graph.replay()
    assert woven(gpu) == [True] * 3
    assert profile.notes["CUDA graphs"] == [
        "stepped: replays beyond the quota run the woven kernel without recording; "
        "the library does not give access to the graph's nodes"
    ]


def test_the_quota_may_end_inside_a_replay(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile(launches=3, skip=0) as profile:
        graph, _ = captured(torch, gpu, {}, {})
        for _ in range(4):
            graph.replay()
    assert places(profile.trace) == [(0, 0), (0, 1), (0, 0)]


def test_every_second_launch_and_those_after_the_first_three(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile(skip=3, every=2) as profile:
        graph, _ = captured(torch, gpu, {}, {})
        for _ in range(4):
            graph.replay()
    assert places(profile.trace) == [(0, 1), (0, 1), (0, 1)]


def test_two_graphs_and_eager_launches_in_turn(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile() as profile:
        first, _ = captured(torch, gpu, {"steps": 1})
        second, _ = captured(torch, gpu, {"steps": 2}, {"steps": 3})
        for graph in (second, first, second):
            graph.replay()
            run(gpu, steps=5)
    assert places(profile.trace) == [
        (1, 0), (1, 1), (None, None), (0, 0), (None, None), (1, 0), (1, 1), (None, None)
    ]  # fmt: skip
    loads = [
        sum(count for (region, *_), count in spans.items() if region == "load")
        for spans in spans_by_launch(profile.trace)
    ]
    assert loads == [6 * steps for steps in (2, 3, 5, 1, 5, 2, 3, 5)]


def test_streams_that_are_captured_into_one_graph(gpu: FakeGpu, torch: TorchGraphs) -> None:
    torch.streams = (7, 8)
    with wl.profile() as profile:
        graph = torch.CUDAGraph()
        with torch.capturing(graph):
            run(gpu, steps=1)
            gpu.stream = 8
            run(gpu, steps=2)
            gpu.stream = 9
            run(gpu, steps=3)
        gpu.stream = 7
        graph.replay()
    assert places(profile.trace) == [(None, None), (0, 0), (0, 1)], "stream 9 is not a part of the capture"


def test_a_graph_of_more_kernels_than_a_block_has_cells(
    gpu: FakeGpu, torch: TorchGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warplens.launch import captured_graphs as graphs
    from warplens.launch import graph_cells

    monkeypatch.setattr(graphs, "BLOCK_CELLS", 2)
    monkeypatch.setattr(graph_cells, "BLOCK_CELLS", 2)
    with wl.profile() as profile:
        graph, _ = captured(torch, gpu, *[{"blocks": 1, "steps": step} for step in range(1, 6)])
        graph.replay()
    loads = [sum(n for key, n in one.items() if key[0] == "load") for one in spans_by_launch(profile.trace)]
    assert loads == [2, 4, 6, 8, 10]


def test_a_graph_captured_without_a_profile_runs_and_is_named(gpu: FakeGpu, torch: TorchGraphs) -> None:
    graph, (target,) = captured(torch, gpu)
    with wl.profile() as profile:
        run(gpu)
        graph.replay()
    assert not gpu.fired[-1].scratch
    assert len(profile.trace.meta.launches) == 1
    assert "not captured inside the profile" in profile.notes["CUDA graphs"][0]
    np.testing.assert_array_equal(target.numpy(), np.arange(384, dtype=np.float32) * 2 + 3)


def test_a_graph_outlives_its_profile_and_is_recorded_by_the_next(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile() as first:
        graph, (target,) = captured(torch, gpu)
        graph.replay()
    before = gpu.space.read(gpu.fired[-1].scratch, np.uint64, 1)[0]
    assert before == 0
    gc.collect()
    target.space.write(target.address, np.zeros(384, np.float32))
    graph.replay()
    np.testing.assert_array_equal(target.numpy(), np.arange(384, dtype=np.float32) * 2 + 3)
    with wl.profile() as second:
        run(gpu)
        for _ in range(2):
            graph.replay()
    assert len(first.trace.meta.launches) == 1
    assert places(second.trace) == [(None, None), (0, 0), (0, 0)]
    assert len(set(map(str, spans_by_launch(second.trace)))) == 1


def test_a_profile_with_other_options_does_not_record_the_graph_of_another(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile():
        graph, _ = captured(torch, gpu)
        graph.replay()
    with wl.profile(blocks=[1]) as profile:
        run(gpu)
        graph.replay()
    assert places(profile.trace) == [(None, None)]
    assert "captured by a profile with other options" in profile.notes["stepped"][0]


def test_kernels_without_marks_and_kernels_not_asked_for_are_captured_plain(gpu: FakeGpu, torch: TorchGraphs) -> None:
    profile = wl.profile(kernels="nothing", auto="all")
    with pytest.raises(WarplensError, match="profiled"), profile:
        graph, _ = captured(torch, gpu)
        graph.replay()
    assert not gpu.fired[-1].scratch


def test_a_replay_that_fails_gives_its_memory_back(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile() as profile:
        graph, _ = captured(torch, gpu)
        graph.replay()

        def fail(function: Any) -> None:
            raise RuntimeError("device lost")

        graph.captured.launches.insert(0, GraphLaunch(None, fail))
        with pytest.raises(RuntimeError, match="device lost"):
            graph.replay()
        assert not any(cells_of(gpu))
        graph.captured.launches.pop(0)
        graph.replay()
        engine = profile.buffers.engine()
        engine.collector.land_finished()
        assert engine.in_use == 0
    assert [sum(one.values()) for one in spans_by_launch(profile.trace)] == [108, 108]


def test_a_capture_that_fails_leaves_the_profile_working(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile() as profile:
        graph = torch.CUDAGraph()
        with pytest.raises(ZeroDivisionError), torch.capturing(graph):
            run(gpu)
            raise ZeroDivisionError
        again, _ = captured(torch, gpu)
        again.replay()
        run(gpu)
    assert places(profile.trace) == [(1, 0), (None, None)]


def test_a_launch_that_fails_during_a_capture_leaves_the_others_whole(
    gpu: FakeGpu, torch: TorchGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = gpu.driver.graphs.run
    failures = iter([False, True, False])

    def sometimes(*launch: Any) -> None:
        if next(failures):
            raise RuntimeError("invalid launch")
        add(*launch)

    with wl.profile() as profile:
        graph = torch.CUDAGraph()
        with torch.capturing(graph), monkeypatch.context() as patched:
            patched.setattr(gpu.driver.graphs, "run", sometimes)
            run(gpu, steps=1)
            with pytest.raises(RuntimeError, match="invalid launch"):
                run(gpu, steps=2)
            run(gpu, steps=3)
        graph.replay()
    assert places(profile.trace) == [(0, 0), (0, 2)]
    loads = [sum(n for key, n in one.items() if key[0] == "load") for one in spans_by_launch(profile.trace)]
    assert loads == [6, 18]


def test_a_graph_that_becomes_part_of_another_records_nothing_then(gpu: FakeGpu, torch: TorchGraphs) -> None:
    with wl.profile(launches=1, skip=0) as profile:
        graph, _ = captured(torch, gpu)
        outer = torch.CUDAGraph()
        with torch.capturing(outer):
            graph.replay()
        graph.replay()
    assert places(profile.trace) == [(0, 0)]


def test_a_replay_on_another_stream_waits_for_the_one_before(
    gpu: FakeGpu, torch: TorchGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[tuple[int, int]] = []
    monkeypatch.setattr(gpu.driver, "hold", lambda stream, event: held.append((stream, event)))
    with wl.profile():
        graph, _ = captured(torch, gpu)
        for stream in (7, 7, 12):
            torch.stream = stream
            graph.replay()
        (known,) = [one for one in captured_graphs(gpu.driver)._graphs.values() if one.nodes]
        assert held[-1:] == [(12, known.event)]
        assert [stream for stream, _ in held if stream == 12] == [12]


def test_a_graph_too_large_for_the_memory_is_recorded_over_several_replays(
    gpu: FakeGpu, torch: TorchGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Engine.take
    monkeypatch.setattr(Engine, "take", lambda engine, *asked: None if engine.in_use else take(engine, *asked))
    with wl.profile(launches=1, skip=0) as profile:
        graph, _ = captured(torch, gpu, *[{"blocks": blocks} for blocks in (1, 2, 3)])
        for _ in range(5):
            graph.replay()
            profile.buffers.engine().collector.land_finished()
    assert places(profile.trace) == [(0, 0), (0, 1), (0, 2)]
    assert "stepped" not in profile.notes


def test_a_graph_that_was_captured_anew_behind_our_back_is_no_empty_launch(
    gpu: FakeGpu, torch: TorchGraphs, capsys: pytest.CaptureFixture[str]
) -> None:
    with wl.profile():
        graph, _ = captured(torch, gpu)
        graph.replay()
    with torch.capturing(graph):
        _, target = run(gpu)
    with wl.profile() as profile:
        run(gpu)
        graph.replay()
    np.testing.assert_array_equal(target.numpy(), np.arange(384, dtype=np.float32) * 2 + 3)
    assert places(profile.trace) == [(None, None)]
    assert "a replay of its graph left no records" in capsys.readouterr().err


steps = st.lists(
    st.one_of(
        st.tuples(st.just("eager"), st.integers(1, 2)),
        st.tuples(st.just("capture"), st.lists(st.integers(1, 2), min_size=1, max_size=3)),
        st.tuples(st.just("replay"), st.integers(0, 3)),
    ),
    max_size=8,
)


@given(steps=steps)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_launches_captures_and_replays(gpu: FakeGpu, torch: TorchGraphs, steps: list[Any]) -> None:
    """Every recorded launch, replayed or not, has the spans of an eager launch of the same kernel."""
    graphs: list[tuple[Any, list[int]]] = []
    expected: list[tuple[Any, Any, int]] = []
    with wl.profile(records_per_warp=64) as profile:
        run(gpu, blocks=1, steps=1)
        run(gpu, blocks=1, steps=2)
        for action, what in steps:
            if action == "eager":
                run(gpu, blocks=1, steps=what)
                expected.append((None, None, what))
            elif action == "capture":
                graphs.append((captured(torch, gpu, *[{"blocks": 1, "steps": one} for one in what])[0], what))
            elif what < len(graphs):
                graphs[what][0].replay()
                expected += [(what, node, one) for node, one in enumerate(graphs[what][1])]
    spans = spans_by_launch(profile.trace)
    alone = {1: spans[0], 2: spans[1]}
    assert [(*place, one) for place, one in zip(places(profile.trace)[2:], spans[2:], strict=True)] == [
        (graph, node, alone[count]) for graph, node, count in expected
    ]
    assert not any(cells_of(gpu))
