"""The GPU backend over a torch whose device is simulated: what is put on the stream, and what the events then say."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warplens.bench.cuda_backend as cuda
import warplens.bench.nvml as nvml
from warplens.bench.cuda_backend import CudaBackend
from warplens.bench.measurement_method import Method
from warplens.bench.throttle import Reading
from warplens.errors import UsageError, WarplensError


class Stream:
    """A device that works off what the host queues: each piece of work starts when it is there and the last is done."""

    def __init__(self) -> None:
        self.host, self.free, self.log = 0.0, 0.0, list[str]()

    def queue(self, name: str, seconds: float, launch: float = 5e-6) -> float:
        self.host += launch
        self.free = max(self.free, self.host) + seconds
        self.log.append(name)
        return self.free

    def synchronize(self) -> None:
        self.host = max(self.host, self.free)


class FakeTorch(ModuleType):
    int8, float64 = np.int8, np.float64

    def __init__(self, stream: Stream) -> None:
        super().__init__("torch")
        self.version = SimpleNamespace(cuda="13.0")
        fake = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = stream.queue("event", 0.0, 1e-6)

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) * 1e3

        class CUDAGraph:
            work: list[tuple[str, float]]

            def replay(self) -> None:
                for number, (name, seconds) in enumerate(self.work):
                    stream.queue(f"replay {name}", seconds, 5e-6 if number == 0 else 0.0)

        @contextmanager
        def graph(made: CUDAGraph) -> Any:
            fake.captured = made.work = []
            yield
            fake.captured = None

        self.captured: list[tuple[str, float]] | None = None
        self.stream = stream
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 0,
            get_device_properties=lambda index: SimpleNamespace(
                name="NVIDIA H200", L2_cache_size=50 << 20, major=9, minor=0, multi_processor_count=132,
                total_memory=1 << 37,
            ),
            Event=Event,
            CUDAGraph=CUDAGraph,
            graph=graph,
            synchronize=stream.synchronize,
            empty_cache=lambda: None,
            mem_get_info=lambda: (1 << 36, 1 << 37),
            _sleep=lambda cycles: stream.queue("hold", cycles / 2e9),
        )  # fmt: skip

    def empty(self, size: int, **_: Any) -> Any:
        return SimpleNamespace(zero_=lambda: self.stream.queue("flush", 2 * size / 4e12), size=size)

    def kernel(self, name: str, seconds: float, launch: float = 5e-6) -> None:
        if self.captured is not None:
            self.captured.append((name, seconds))
        else:
            self.stream.queue(name, seconds, launch)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    stream = Stream()
    made = FakeTorch(stream)
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(cuda, "gpu_names", lambda: ["NVIDIA H200"])
    monkeypatch.setattr(cuda.time, "perf_counter", lambda: stream.host)
    return made


def measured(torch: FakeTorch, seconds: float, launch: float, **settings: Any) -> list[float]:
    backend = CudaBackend()
    method = backend.resolve(Method(**settings))
    calls = backend.prepare([lambda: torch.kernel("kernel", seconds, launch)], method)
    backend.sample(calls, method)
    torch.stream.log.clear()
    return backend.sample(list(calls) * 40, method)


@pytest.mark.parametrize("settings", [{}, {"cache": "warm"}, {"timer": "graph"}, {"timer": "graph", "cache": "warm"}])
@pytest.mark.parametrize("launch", [5e-6, 2e-4])
def test_a_slow_host_does_not_count(torch: FakeTorch, settings: dict[str, str], launch: float) -> None:
    """A kernel of 10 us is measured as 10 us although the host takes 200 us to launch it."""
    assert measured(torch, 10e-6, launch, **settings) == pytest.approx([10_000.0] * 40, abs=1.0)


def test_l2_is_flushed_before_every_call_and_outside_the_events(torch: FakeTorch) -> None:
    measured(torch, 10e-6, 5e-6)
    work = [name for name in torch.stream.log if name != "hold"]
    assert work == ["flush", "event", "kernel", "event"] * 40
    measured(torch, 10e-6, 5e-6, cache="warm")
    assert "flush" not in torch.stream.log


def test_a_graph_is_captured_once_and_replayed(torch: FakeTorch) -> None:
    measured(torch, 10e-6, 5e-6, timer="graph")
    work = [name for name in torch.stream.log if name != "hold"]
    assert work == ["flush", "event", "replay kernel", "event"] * 40


def test_a_call_that_waits_for_the_device_itself_does_not_grow_the_hold(torch: FakeTorch) -> None:
    backend = CudaBackend()
    method = backend.resolve(Method(cache="warm"))

    def waits() -> None:
        torch.kernel("kernel", 1e-4)
        torch.stream.synchronize()

    for _ in range(6):
        begin = torch.stream.host
        backend.sample([waits] * 20, method)
    assert torch.stream.host - begin < 20 * 1e-4 * 4


def test_rotating_inputs_outgrow_l2(torch: FakeTorch) -> None:
    backend = CudaBackend()
    block = SimpleNamespace(nbytes=10 << 20)
    sets = backend.input_sets((block, block, 3))
    assert sets * 20 >= 3 * 50 > (sets - 1) * 20
    assert backend.input_sets((1, 2)) == 1
    assert backend.input_sets((SimpleNamespace(nbytes=1 << 34),)) == 2


def test_the_clock_is_read_under_load(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    pending: list[bool] = []

    def reading(self: Any) -> Reading:
        pending.append(torch.stream.free > torch.stream.host)
        return Reading(1500.0, ("the power limit",))

    monkeypatch.setattr(nvml.Nvml, "reading", reading)
    backend = CudaBackend()
    method = backend.resolve(Method())
    calls = backend.prepare([lambda: torch.kernel("kernel", 1e-3)], method)
    backend.clocks()
    backend.sample(list(calls) * 200, method)
    assert backend.clocks()[0].mhz == 1500
    assert len(pending) > 2
    assert all(pending)
    assert backend.clocks() == []


def test_a_broken_context_is_noticed(torch: FakeTorch) -> None:
    backend = CudaBackend()
    assert backend.recover() == ""

    def synchronize() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    torch.cuda.synchronize = synchronize
    assert "illegal memory access was encountered)" in backend.recover()


def test_what_cannot_be_measured_is_refused(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'clock' is only supported on the CPU"):
        CudaBackend().resolve(Method(timer="clock"))
    torch.cuda.is_available = lambda: False
    with pytest.raises(WarplensError, match="no GPU: the installed torch cannot use the NVIDIA H200"):
        CudaBackend()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(WarplensError, match="need torch: pip install torch"):
        CudaBackend()
    monkeypatch.setattr(cuda, "gpu_names", lambda: None)
    with pytest.raises(WarplensError, match="no GPU: there is no NVIDIA driver"):
        CudaBackend()
