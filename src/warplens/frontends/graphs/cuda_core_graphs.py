"""cuda.core's CUDA graphs: GraphBuilder captures, Graph.launch replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warplens.driver.kernel_arguments import stream_handle
from warplens.frontends.graphs.executables import executables
from warplens.frontends.wrap import wrap_all
from warplens.session import Session


def install(running: Session) -> list[Callable[[], None]]:
    """Follow captures and replays. Return functions that end this."""
    from cuda.core.graph import Graph, GraphBuilder

    known = executables(running)

    def begin_building(original: Callable[..., Any], builder: Any, *arguments: Any, **options: Any) -> Any:
        result = original(builder, *arguments, **options)
        known.began(stream_handle(builder))
        return result

    def complete(original: Callable[..., Any], builder: Any, *arguments: Any, **options: Any) -> Any:
        graph = original(builder, *arguments, **options)
        known.made(int(graph.handle), known.of_stream(stream_handle(builder)))
        return graph

    def update(original: Callable[..., Any], graph: Any, source: Any, *arguments: Any, **options: Any) -> Any:
        result = original(graph, source, *arguments, **options)
        captured = known.of_stream(stream_handle(source)) if isinstance(source, GraphBuilder) else None
        known.made(int(graph.handle), captured)
        return result

    def launch(original: Callable[..., Any], graph: Any, stream: Any) -> Any:
        return known.replay(int(graph.handle), stream_handle(stream), lambda: original(graph, stream))

    return wrap_all(
        (GraphBuilder, "begin_building", begin_building), (GraphBuilder, "complete", complete),
        (Graph, "update", update), (Graph, "launch", launch),
    )  # fmt: skip
