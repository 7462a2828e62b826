"""PyTorch's CUDA graphs: torch.cuda.graph, make_graphed_callables and torch.compile all go through CUDAGraph."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.frontends.wrap import wrap_all
from warplens.launch.captured_graphs import CapturedGraph, captured_graphs
from warplens.session import Session

_GRAPH = "_warplens_graph"
"""The attribute of a CUDAGraph that keeps what is known of it."""
_KEPT = "_warplens_kept"
"""The attribute of a CUDAGraph that is true where only warplens asked torch to keep the graph."""
_RAW = ("raw_cuda_graph", "raw_cuda_graph_exec", "instantiate")
"""What a torch has that gives access to the driver's handles."""


def install(running: Session) -> list[Callable[[], None]]:
    """Follow captures and replays. Return functions that end this."""
    from torch.cuda import CUDAGraph, current_stream

    def capture_begin(original: Callable[..., Any], graph: Any, *arguments: Any, **options: Any) -> Any:
        result = original(graph, *arguments, **options)
        with suppress(WarplensError):  # without a driver of ours there is nothing to follow
            lib = libcuda.driver()
            capture = lib.capture(int(current_stream().cuda_stream))
            if capture is not None:
                known = running.replays.graph(capture)
                known.executable = functools.partial(_executable, weakref.ref(graph))
                setattr(graph, _GRAPH, known)
                weakref.finalize(graph, captured_graphs(lib).forget, capture).atexit = False
        return result

    def replay(original: Callable[..., Any], graph: Any) -> Any:
        known: CapturedGraph | None = getattr(graph, _GRAPH, None)
        if known is not None and not known.nodes:
            return original(graph)
        return running.replays.replay(known, int(current_stream().cuda_stream), lambda: original(graph))

    keep = _kept_graphs(CUDAGraph) if all(hasattr(CUDAGraph, name) for name in _RAW) else ()
    return wrap_all((CUDAGraph, "capture_begin", capture_begin), (CUDAGraph, "replay", replay), *keep)


def _kept_graphs(graph_class: Any) -> tuple[tuple[Any, str, Callable[..., Any]], ...]:
    """Wrappers that let torch keep the graphs that it makes executable: the driver finds the nodes of an executable
    graph by them."""

    def init(original: Callable[..., None], graph: Any, keep_graph: bool = False) -> None:
        original(graph, True)
        setattr(graph, _KEPT, not keep_graph)

    def capture_end(original: Callable[..., Any], graph: Any) -> Any:
        result = original(graph)
        if getattr(graph, _KEPT, False):
            graph.instantiate()  # as torch does at this point with a graph that it does not keep
        return result

    return (graph_class, "__init__", init), (graph_class, "capture_end", capture_end)


def _executable(reference: Callable[[], Any]) -> int:
    """The handle of the executable graph, if torch has kept the graph that it was made of."""
    graph = reference()
    try:
        return int(graph.raw_cuda_graph_exec()) if graph.raw_cuda_graph() else 0
    except (AttributeError, RuntimeError):
        return 0
