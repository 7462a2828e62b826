"""PyTorch's CUDA graphs on a driver without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.contexts import Contexts, StreamGraph


class TorchGraphs:
    """`CUDAGraph` as torch.cuda.graphs has it, and the stream that is current. `streams` are captured together.
    Older versions do not give access to the `raw` handles."""

    def __init__(self, driver: Contexts, stream: int, *, raw: bool = True) -> None:
        self.driver, self.stream = driver, stream
        self.streams: tuple[int, ...] = (stream,)
        fake = self

        class CUDAGraph:
            captured: StreamGraph | None = None
            executable = False

            def __init__(self, keep_graph: bool = False) -> None:
                self.keep_graph = keep_graph

            def raw_cuda_graph(self) -> int:
                if not self.keep_graph or self.captured is None:
                    raise RuntimeError("You cannot access the raw cudaGraph_t instance unless keep_graph is true")
                return self.captured.number

            def raw_cuda_graph_exec(self) -> int:
                if not self.executable:
                    raise RuntimeError("instantiate() has not been called")
                return self.raw_cuda_graph() + 1

            def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
                self.captured = fake.driver.graphs.begin(*fake.streams)

            def capture_end(self) -> None:
                assert self.captured is not None
                fake.driver.graphs.end(self.captured)
                if not self.keep_graph:
                    self.executable = True

            def instantiate(self) -> None:
                assert not self.executable, "instantiated twice"
                self.executable = True

            def replay(self) -> None:
                assert self.captured is not None
                self.executable = True
                self.captured.replay()

        if not raw:
            del CUDAGraph.raw_cuda_graph, CUDAGraph.raw_cuda_graph_exec, CUDAGraph.instantiate
        self.CUDAGraph = CUDAGraph

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`import torch` gives as much of torch as graphs need."""
        torch, cuda, graphs = (ModuleType(name) for name in ("torch", "torch.cuda", "torch.cuda.graphs"))
        torch.Tensor, torch.dtype, torch.cuda = type("Tensor", (), {}), type("dtype", (), {}), cuda
        cuda.CUDAGraph, cuda.graphs = self.CUDAGraph, graphs
        cuda.current_stream = lambda: SimpleNamespace(cuda_stream=self.stream)
        for module in (torch, cuda, graphs):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    @contextmanager
    def capturing(self, graph: Any) -> Iterator[None]:
        """As torch.cuda.graph."""
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()
