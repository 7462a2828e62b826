"""Kernels in CUDA graphs on a real GPU: every replay kept apart, results bit for bit, spans as those of a launch."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

import triton.language as tl  # noqa: E402

import warplens as wl  # noqa: E402
import warplens.triton as wlt  # noqa: E402

pytestmark = pytest.mark.gpu
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "triton"))

import vector_add  # noqa: E402

from tests.support.replays import places, spans_by_launch  # noqa: E402

N = 4096


@triton.jit
def scaled(x, y, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        value = tl.load(x + offsets, mask=offsets < n)
    for _ in range(3):
        with wlt.region("scale"):
            value = value * factor + 1.0
    with wlt.region("store"):
        tl.store(y + offsets, value, mask=offsets < n)


def scale(x: Any, y: Any) -> None:
    scaled[(N // 1024,)](x, y, N, 1.5, BLOCK=1024)


def add(x: Any, y: Any, out: Any) -> None:
    vector_add.vector_add[(N // 1024,)](x, y, out, N, BLOCK=1024)


def vectors(count: int) -> list[Any]:
    torch.manual_seed(1)
    return [torch.randn(N, device="cuda") for _ in range(count)]


def test_200_replays_have_the_spans_of_an_eager_launch_and_its_results() -> None:
    x, y, expected = vectors(3)
    scale(x, expected)
    with wl.profile(records_per_warp=64) as profile:
        scale(x, y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, y)
        y.zero_()
        for _ in range(200):
            graph.replay()
    assert torch.equal(y, expected)
    spans = spans_by_launch(profile.trace)
    assert len(spans) == 201
    assert all(one == spans[0] for one in spans)
    assert places(profile.trace) == [(None, None), *[(0, 0)] * 200]
    starts = profile.trace.spans.group_by("launch").aggregate([("start_ns", "min")])
    ordered = [row["start_ns_min"] for row in sorted(starts.to_pylist(), key=lambda row: row["launch"])]
    assert ordered == sorted(ordered), "replays follow each other"
    assert profile.trace.meta.losses.records_lost == 0


def test_inputs_may_change_between_replays_of_several_kernels() -> None:
    x, y, middle, out = vectors(4)
    scale(x, middle)
    add(middle, y, out)
    with wl.profile(records_per_warp=64) as profile:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, middle)
            add(middle, y, out)
        results = []
        for step in range(5):
            x.fill_(step)
            graph.replay()
            results.append(out.clone())
    for step, result in enumerate(results):
        x.fill_(step)
        scale(x, middle)
        add(middle, y, out)
        assert torch.equal(result, out)
    assert places(profile.trace) == [(0, 0), (0, 1)] * 5


def test_quota_and_replays_beyond_it() -> None:
    x, y, expected = vectors(3)
    scale(x, expected)
    with wl.profile(launches=3, skip=0) as profile:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, y)
        for _ in range(20):
            graph.replay()
    assert torch.equal(y, expected)
    assert len(profile.trace.meta.launches) == 3
    assert profile.seen["scaled"] == 20


def test_replays_beyond_the_quota_run_the_plain_kernel() -> None:
    """Where torch gives access to the graph's nodes; else the user is told."""
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
        pytest.skip("this torch gives no access to the nodes of a graph")
    x, y, expected = vectors(3)
    scale(x, expected)
    with wl.profile(launches=2, skip=0) as profile:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, y)
        for _ in range(5):
            graph.replay()
        y.zero_()
        graph.replay()
        assert torch.equal(y, expected)
        (known,) = profile.replays._numbers
        assert known.plain == {0}
    assert "CUDA graphs" not in profile.notes
    with wl.profile(launches=2, skip=0) as again:
        for _ in range(5):
            graph.replay()
    y.zero_()
    graph.replay()
    assert torch.equal(y, expected)
    assert spans_by_launch(again.trace) == spans_by_launch(profile.trace)


def test_two_graphs_and_eager_launches_in_turn() -> None:
    x, y, out, other = vectors(4)
    scale(x, y)
    add(x, y, out)
    with wl.profile(records_per_warp=64) as profile:
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            scale(x, other)
        with torch.cuda.graph(second):
            add(x, y, out)
            scale(x, other)
        for graph in (second, first, second):
            graph.replay()
            scale(x, y)
    alone = [(None, None)]
    assert places(profile.trace) == [(1, 0), (1, 1), *alone, (0, 0), *alone, (1, 0), (1, 1), *alone]
    assert torch.equal(other, y)


def test_streams_that_are_captured_together() -> None:
    x, y, out, other = vectors(4)
    scale(x, other)
    add(x, y, out)
    with wl.profile(records_per_warp=64) as profile:
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, other)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                add(x, y, out)
            scale(other, y)
            torch.cuda.current_stream().wait_stream(side)
        for _ in range(10):
            graph.replay()
    assert places(profile.trace) == [(0, 0), (0, 1), (0, 2)] * 10
    assert profile.trace.meta.losses.records_lost == 0


def test_replays_on_several_streams_are_kept_apart() -> None:
    x, y, expected = vectors(3)
    scale(x, expected)
    with wl.profile(records_per_warp=64) as profile:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, y)
        streams = [torch.cuda.Stream() for _ in range(3)]
        for number in range(60):
            with torch.cuda.stream(streams[number % 3]):
                graph.replay()
        torch.cuda.synchronize()
    spans = spans_by_launch(profile.trace)
    assert len(spans) == 60
    assert all(one == spans[0] for one in spans)
    assert torch.equal(y, expected)


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_first_compilation_inside_the_capture_does_no_harm(mode: str) -> None:
    """The first recorded kernel of the profile is compiled and loaded, and its cell allocated, during the capture."""
    x, y, expected = vectors(3)
    scale(x, expected)
    with wl.profile(records_per_warp=32) as profile:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            scale(x, y)
        graph.replay()
    assert torch.equal(y, expected)
    assert places(profile.trace) == [(0, 0)]


def test_a_graph_of_an_earlier_profile_is_recorded_again() -> None:
    x, y, expected = vectors(3)
    scale(x, expected)
    with wl.profile(records_per_warp=64) as first:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, y)
        graph.replay()
    for _ in range(10):
        graph.replay()
    with wl.profile(records_per_warp=64) as second:
        for _ in range(3):
            graph.replay()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, expected)
    assert len(first.trace.meta.launches) == 1
    assert spans_by_launch(second.trace) == spans_by_launch(first.trace) * 3


def test_make_graphed_callables() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = torch.empty_like(x)
            scale(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 1.5**3

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return Scale.apply(x) + 0.0

    (x,) = vectors(1)
    expected = Model()(x)
    with wl.profile(records_per_warp=64) as profile:
        sample = torch.randn(N, device="cuda", requires_grad=True)
        model = torch.cuda.make_graphed_callables(Model().cuda(), (sample,))
        results = [model(x.clone().requires_grad_()).detach().clone() for _ in range(4)]
    assert all(torch.equal(result, expected) for result in results)
    assert [place for place in places(profile.trace) if place[0] is not None] == [
        (profile.trace.meta.launches[-1].extra["graph"], 0)
    ] * 4


@pytest.mark.parametrize("options", [{"auto": "all"}, {"auto": "all", "launches": 2}])
def test_torch_compile_with_reduced_overhead(options: dict[str, Any]) -> None:
    pytest.importorskip("torch._inductor.runtime.triton_heuristics")

    def work(x: Any, y: Any) -> Any:
        return torch.softmax(torch.relu(x * 2 + y), dim=-1).sum(dim=0)

    x, y = (torch.randn(256, 512, device="cuda") for _ in range(2))
    torch._dynamo.reset()
    plain = torch.compile(work, mode="reduce-overhead")
    expected = [plain(x, y).clone() for _ in range(4)][-1]
    before = torch.cuda.memory_allocated()
    torch._dynamo.reset()
    with wl.profile(records_per_warp=256, **options) as profile:
        compiled = torch.compile(work, mode="reduce-overhead")
        results = [compiled(x, y).clone() for _ in range(8)]
    assert all(torch.equal(result, expected) for result in results)
    assert any(place[0] is not None for place in places(profile.trace)), profile.notes
    assert torch.cuda.memory_allocated() - before < 1 << 24


SOURCE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 4; ++k)
    if (i < n) y[i] = 2.0f * x[i] + k;
}
"""


def check_replays(profile: Any, replays: int) -> None:
    spans = spans_by_launch(profile.trace)
    assert places(profile.trace) == [(None, None), *[(0, 0)] * replays], profile.notes
    assert spans[0]
    assert all(one == spans[0] for one in spans)


def test_a_cupy_graph() -> None:
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(SOURCE, "twice")
    x, y = cupy.arange(N, dtype=cupy.float32), cupy.zeros(N, cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        kernel((N // 256,), (256,), (x, y, cupy.int32(N)))
        expected = y.copy()
        with wl.profile(auto="all") as profile:
            kernel((N // 256,), (256,), (x, y, cupy.int32(N)))
            stream.begin_capture()
            kernel((N // 256,), (256,), (x, y, cupy.int32(N)))
            graph = stream.end_capture()
            y.fill(0)
            for _ in range(20):
                graph.launch(stream)
            stream.synchronize()
        assert (y == expected).all()
    check_replays(profile, 20)


def test_a_cuda_core_graph() -> None:
    core = pytest.importorskip("cuda.core")
    pytest.importorskip("cuda.core.graph")
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    x, y = torch.arange(N, device="cuda", dtype=torch.float32), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with wl.profile(auto="all") as profile:
        options = core.ProgramOptions(arch=f"sm_{device.arch}")
        kernel = core.Program(SOURCE, "c++", options).compile("cubin").get_kernel("twice")
        config = core.LaunchConfig(grid=N // 256, block=256)
        given = (config, kernel, x.data_ptr(), y.data_ptr(), ctypes.c_int(N))
        core.launch(stream, *given)
        builder = stream.create_graph_builder()
        builder.begin_building()
        core.launch(builder, *given)
        graph = builder.end_building().complete()
        for _ in range(20):
            graph.launch(stream)
        stream.sync()
    assert torch.equal(y, 2 * x + 3)
    check_replays(profile, 20)
