"""CUDA graphs by the driver's functions in cuda.bindings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from warplens.frontends.graphs.executables import executables
from warplens.frontends.intercept.name_swap import by_position, swap_all
from warplens.session import Session

_BEGIN, _LAUNCH = "StreamBeginCapture", "GraphLaunch"
_INSTANTIATE = ("GraphInstantiate", "GraphInstantiateWithParams", "GraphInstantiateWithFlags")


def install(running: Session) -> list[Callable[[], None]]:
    """Follow captures and replays by the driver's functions. Return functions that end this."""
    return follow(running, sys.modules["cuda.bindings.driver"], "cu")


def follow(running: Session, module: ModuleType, prefix: str) -> list[Callable[[], None]]:
    """Follow captures and replays by the functions of a module, whose names begin with `prefix`."""
    known = executables(running)

    def begin(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin_capture(stream: Any, *rest: Any) -> Any:
            result = original(stream, *rest)
            if not int(result[0]):
                known.began(int(stream or 0))
            return result

        return begin_capture

    def instantiate(original: Callable[..., Any]) -> Callable[..., Any]:
        def instantiate_graph(graph: Any, *rest: Any) -> Any:
            result = original(graph, *rest)
            if not int(result[0]):
                known.made(int(result[1]), known.of_handle(int(graph)))
            return result

        return instantiate_graph

    def launch(original: Callable[..., Any]) -> Callable[..., Any]:
        def launch_graph(executable: Any, stream: Any) -> Any:
            return known.replay(int(executable), int(stream or 0), lambda: original(executable, stream))

        return launch_graph

    pairs = []
    for name, watch in {_BEGIN: begin, **dict.fromkeys(_INSTANTIATE, instantiate), _LAUNCH: launch}.items():
        original = getattr(module, prefix + name, None)
        if original is not None:
            pairs.append((original, by_position(original, watch(original))))
    return [swap_all(pairs)]
