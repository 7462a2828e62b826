"""CuPy's CUDA graphs: Stream.begin_capture, Stream.end_capture and Graph.launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warplens.frontends.graphs.executables import executables
from warplens.frontends.wrap import wrap_all
from warplens.session import Session


def install(running: Session) -> list[Callable[[], None]]:
    """Follow captures and replays. Return functions that end this."""
    try:
        from cupy.cuda.graph import Graph
    except ModuleNotFoundError:
        return []  # a CuPy without graphs
    from cupy.cuda import get_current_stream
    from cupy.cuda.stream import _BaseStream

    known = executables(running)

    def begin_capture(original: Callable[..., Any], stream: Any, *arguments: Any, **options: Any) -> Any:
        result = original(stream, *arguments, **options)
        known.began(int(stream.ptr))
        return result

    def end_capture(original: Callable[..., Any], stream: Any) -> Any:
        graph = original(stream)
        known.made(id(graph), known.of_stream(int(stream.ptr)))
        return graph

    def launch(original: Callable[..., Any], graph: Any, stream: Any = None) -> Any:
        handle = int((get_current_stream() if stream is None else stream).ptr)
        # Every graph comes from `end_capture`, so the identity of one that is gone stands for the next that has it.
        return known.replay(id(graph), handle, lambda: original(graph, stream))

    return wrap_all(
        (_BaseStream, "begin_capture", begin_capture), (_BaseStream, "end_capture", end_capture),
        (Graph, "launch", launch),
    )  # fmt: skip
