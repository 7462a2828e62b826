"""PyTorch's CUDA graphs: torch.cuda.graph, make_graphed_callables and torch.compile all go through CUDAGraph."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from warplens.driver import libcuda
from warplens.driver.libcuda import StreamCapture
from warplens.errors import WarplensError
from warplens.frontends.wrap import wrap
from warplens.launch.captured_graphs import CapturedGraph, captured_graphs
from warplens.session import Session

_GRAPH = "_warplens_graph"
"""The attribute of a CUDAGraph that keeps what is known of it."""


def install(running: Session) -> list[Callable[[], None]]:
    """Follow captures and replays. Return functions that end this."""
    from torch.cuda import CUDAGraph, current_stream

    def capture_begin(original: Callable[..., Any], graph: Any, *arguments: Any, **options: Any) -> Any:
        result = original(graph, *arguments, **options)
        with suppress(WarplensError):  # without a driver of ours there is nothing to follow
            capture = libcuda.driver().capture(int(current_stream().cuda_stream))
            if capture is not None:
                setattr(graph, _GRAPH, running.replays.graph(capture))
                weakref.finalize(graph, _forget, capture)
        return result

    def replay(original: Callable[..., Any], graph: Any) -> Any:
        known: CapturedGraph | None = getattr(graph, _GRAPH, None)
        if known is not None and not known.nodes:
            return original(graph)
        return running.replays.replay(known, int(current_stream().cuda_stream), lambda: original(graph))

    return [wrap(CUDAGraph, "capture_begin", capture_begin), wrap(CUDAGraph, "replay", replay)]


def _forget(capture: StreamCapture) -> None:
    captured_graphs(libcuda.driver()).forget(capture)
