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
    """`CUDAGraph` as torch.cuda.graphs has it, and the stream that is current. `streams` are captured together."""

    def __init__(self, driver: Contexts, stream: int) -> None:
        self.driver, self.stream = driver, stream
        self.streams: tuple[int, ...] = (stream,)
        fake = self

        class CUDAGraph:
            captured: StreamGraph | None = None

            def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
                self.captured = fake.driver.graphs.begin(*fake.streams)

            def capture_end(self) -> None:
                assert self.captured is not None
                fake.driver.graphs.end(self.captured)

            def replay(self) -> None:
                assert self.captured is not None
                self.captured.replay()

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
