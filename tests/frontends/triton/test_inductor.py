"""Inductor's kernels are marked at their launch: its tuning, its choice and its caches are those of a plain run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.compiler import ASTSource

import warplens as wl
from tests.support.fake_gpu import FakeGpu, fake_gpu
from tests.support.fake_torch_graphs import TorchGraphs
from warplens.driver import libcuda
from warplens.frontends.triton import inductor


@triton.jit
def triton_poi_fused_add_0(x, out, n, XBLOCK: tl.constexpr):
    offs = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(out + offs, tl.load(x + offs) + 1.0)


class Result:
    """As torch's: what a configuration was compiled to."""

    def __init__(self, kernel: Any, config: Any) -> None:
        self.kernel, self.config = kernel, config

    def make_launcher(self) -> Any:
        binary, size = self.kernel, self.config.kwargs["XBLOCK"]
        binary._init_handles()

        def launcher(x: Any, out: Any, n: int, stream: int) -> None:
            grid = n // size
            binary.run(grid, 1, 1, stream, binary.function, binary.packed_metadata, None, None, None, x, out, n, size)

        launcher.config = self.config
        return launcher


class CachingAutotuner:
    """The parts of torch's class that the marker relies on, in the order in which torch goes through them."""

    def __init__(self, *sizes: int, **meta: Any) -> None:
        self.fn, self.inductor_meta, self.custom_kernel = triton_poi_fused_add_0, meta, False
        self.configs = [SimpleNamespace(kwargs={"XBLOCK": size}) for size in sizes]
        self.launchers: list[Any] = []
        self.tuned = 0

    def precompile(self) -> None:
        self.launchers = [self._precompile_config(config).make_launcher() for config in self.configs]

    def _precompile_config(self, config: Any) -> Result:
        signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "XBLOCK": "constexpr"}
        source = ASTSource(self.fn, signature, config.kwargs, {})
        return Result(triton.compile(source, target=triton.runtime.driver.active.get_current_target()), config)

    def autotune_to_one_config(self, *arguments: Any, **options: Any) -> None:
        for launcher in self.launchers:
            for _ in range(3):
                launcher(*arguments, **options, stream=0)
        self.tuned += 1
        self.launchers = [self.launchers[-1]]

    def coordinate_descent_tuning(self, launcher: Any, *arguments: Any, **options: Any) -> Any:
        config = SimpleNamespace(kwargs={"XBLOCK": 32}, found_by_coordesc=True)
        best = self._precompile_config(config).make_launcher()
        best(*arguments, **options, stream=0)
        return best

    def run(self, *arguments: Any, stream: int, benchmark_run: bool = False, **options: Any) -> None:
        if len(self.launchers) != 1:
            if not self.launchers:
                self.precompile()
            if len(self.launchers) > 1:
                self.autotune_to_one_config(*arguments, **options)
        descends = self.inductor_meta.get("coordinate_descent_tuning", False)
        if descends and not getattr(self.launchers[0].config, "found_by_coordesc", False):
            self.launchers = [self.coordinate_descent_tuning(self.launchers[0], *arguments, **options)]
        (launcher,) = self.launchers
        launcher(*arguments, **options, stream=stream)


@contextmanager
def patch(changes: dict[str, Any]) -> Iterator[None]:
    assert changes == {"use_static_cuda_launcher": False}
    yield


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    names = ["torch", "torch._inductor", "torch._inductor.runtime", "torch._inductor.runtime.triton_heuristics"]
    modules = {name: ModuleType(name) for name in names}
    modules[names[1]].config = SimpleNamespace(use_static_cuda_launcher=True, patch=patch)
    modules[names[3]].CachingAutotuner = CachingAutotuner
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    inductor._folder.cache_clear()
    with fake_gpu(monkeypatch) as device:
        yield device
    inductor._folder.cache_clear()


def test_a_cache_folder_that_cannot_be_written_is_not_used(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**given: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert inductor._folder().name.startswith("warplens-inductor-")


def files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def arguments(gpu: FakeGpu) -> tuple[Any, Any, int]:
    return gpu.tensor(np.arange(256, dtype=np.float32)), gpu.tensor(np.zeros(256, np.float32)), 256


def launch(kernel: CachingAutotuner, gpu: FakeGpu, *given: Any) -> str:
    """Run it once; gives the PTX of the launch."""
    kernel.run(*given, stream=gpu.stream)
    assert (given[1].numpy() == np.arange(256) + 1).all()
    return gpu.fired[-1].ptx


def test_the_chosen_kernel_is_marked_and_everything_of_inductors_is_as_without(gpu: FakeGpu, tmp_path: Path) -> None:
    given = arguments(gpu)
    plain = CachingAutotuner(64, 128)
    launch(plain, gpu, *given)
    cached = files(tmp_path / "cache")
    kernel = CachingAutotuner(64, 128)
    with wl.profile(auto="loads,stores") as profile:
        assert "warplens" in launch(kernel, gpu, *given)
        assert "warplens" in launch(kernel, gpu, *given)
        kernel.run(*given, stream=gpu.stream, benchmark_run=True)
    assert kernel.tuned == 1
    assert kernel.launchers[0].config.kwargs == plain.launchers[0].config.kwargs == {"XBLOCK": 128}
    assert profile.seen == {"triton_poi_fused_add_0": 2}
    assert len(profile.trace.meta.launches) == 2
    assert {info.grid for info in profile.trace.meta.launches} == {(2, 1, 1)}
    assert any(region.startswith("store") for region in profile.trace.regions)
    assert files(tmp_path / "cache") == cached
    assert "warplens" not in launch(kernel, gpu, *given)
    with wl.profile(auto="stores") as other:
        launch(CachingAutotuner(128), gpu, *given)
    assert not any(region.startswith("load") for region in other.trace.regions)
    assert files(tmp_path / "own")
    assert knobs.cache.dir == str(tmp_path / "cache")


def test_a_kernel_compiled_in_a_worker_brings_its_source_back(gpu: FakeGpu) -> None:
    kernel, given = CachingAutotuner(128), arguments(gpu)
    kernel.precompile()
    kernel.fn = SimpleNamespace(fn=None, __name__="triton_poi_fused_add_0")
    kernel._reload_kernel = lambda: CachingAutotuner(128)
    with wl.profile(auto="stores") as profile:
        launch(kernel, gpu, *given)
    assert len(profile.trace.meta.launches) == 1


def test_coordinate_descent_ends_before_the_marks_come(gpu: FakeGpu) -> None:
    kernel, given = CachingAutotuner(64, 128, coordinate_descent_tuning=True), arguments(gpu)
    with wl.profile(auto="stores") as profile:
        launch(kernel, gpu, *given)
        launch(kernel, gpu, *given)
    assert {info.grid for info in profile.trace.meta.launches} == {(8, 1, 1)}
    assert profile.seen == {"triton_poi_fused_add_0": 2}
    assert kernel.launchers[0].config.found_by_coordesc


def test_a_kernel_that_cannot_be_compiled_again_runs_unmarked_and_says_why(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments(gpu)

    def lost(self: Any) -> Any:
        raise RuntimeError("the source is gone")

    monkeypatch.setattr(CachingAutotuner, "_reload_kernel", lost, raising=False)
    for strict in (False, True):
        kernel = CachingAutotuner(128)
        kernel.precompile()
        kernel.fn = SimpleNamespace(fn=None, __name__="triton_poi_fused_add_0")
        with (
            pytest.raises(RuntimeError if strict else wl.WarplensError),
            wl.profile(auto="stores", strict=strict),
        ):
            assert "warplens" not in launch(kernel, gpu, *given)
    assert "triton_poi_fused_add_0: runs unmarked: the source is gone" in capsys.readouterr().err


def test_once_enough_is_recorded_the_plain_kernel_is_back_and_both_are_timed(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events on a clock by which a woven launch takes 5 us, and a plain one 4."""
    times: dict[int, float] = {}
    cuda = libcuda.driver()

    def event(stream: int) -> int:
        handle = cuda.new_event()
        times[handle] = float(sum(5000 if "warplens" in one.ptx else 4000 for one in gpu.fired))
        return handle

    monkeypatch.setattr(cuda, "event", event)
    monkeypatch.setattr(cuda, "reached", lambda handle: handle not in times)
    monkeypatch.setattr(cuda, "elapsed_ns", lambda first, second: times.pop(second) - times.pop(first))
    kernel, given = CachingAutotuner(128), arguments(gpu)
    with wl.profile(auto="stores", launches=3) as profile:
        woven = ["warplens" in launch(kernel, gpu, *given) for _ in range(7)]
    assert woven == [True] * 3 + [False] * 4
    assert {info.cost["slowdown_measured"] for info in profile.trace.meta.launches} == {1.25}
    assert (profile.seen, times) == ({"triton_poi_fused_add_0": 7}, {})


def test_kernels_that_are_not_wanted_are_left_alone(gpu: FakeGpu) -> None:
    kernel, given = CachingAutotuner(128), arguments(gpu)
    with pytest.raises(wl.WarplensError, match="matches none of those that ran: triton_poi"):
        with wl.profile(auto="stores", kernels="attn"):
            assert "warplens" not in launch(kernel, gpu, *given)


def test_a_kernel_in_a_graph_is_recorded_at_each_replay(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.compile(mode="reduce-overhead") does it: a warm-up, a capture, then replays."""
    torch = TorchGraphs(gpu.driver, gpu.stream)
    torch.install(monkeypatch)
    for name in ("torch._inductor", "torch._inductor.runtime", "torch._inductor.runtime.triton_heuristics"):
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], sys.modules[name])
    kernel, given = CachingAutotuner(64, 128), arguments(gpu)
    with wl.profile(auto="stores") as profile:
        launch(kernel, gpu, *given)
        graph = torch.CUDAGraph()
        with torch.capturing(graph):
            kernel.run(*given, stream=gpu.stream)
        for _ in range(3):
            gpu.space.write(given[1].address, np.zeros(256, np.float32))
            graph.replay()
            assert (given[1].numpy() == np.arange(256) + 1).all()
    assert [info.extra.get("node") for info in profile.trace.meta.launches] == [None, 0, 0, 0]
    spans = [profile.trace.spans["launch"].to_pylist().count(number) for number in range(4)]
    assert spans[0] > 0
    assert len(set(spans)) == 1
    graph.replay()
