"""Graphs of libraries whose objects keep nothing for us: known by the driver's handles, for one session.

A later session does not know them: the driver may have given a handle to another graph in the meantime.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.launch.captured_graphs import CapturedGraph
from warplens.session import Session

T = TypeVar("T")


_known: WeakKeyDictionary[Session, Executables] = WeakKeyDictionary()


def executables(running: Session) -> Executables:
    """Those of a session: a graph that one library captured may be replayed through another."""
    return _known.setdefault(running, Executables(running))


class Executables:
    """The graphs that were captured in one session, by stream and handle, and what was made of them."""

    def __init__(self, running: Session) -> None:
        self._session: Session = weakref.proxy(running)
        self._streams: dict[int, CapturedGraph] = {}
        self._graphs: dict[int, CapturedGraph] = {}
        self._executables: dict[int, CapturedGraph] = {}

    def began(self, stream: int) -> None:
        """A capture of `stream` has begun."""
        try:
            capture = libcuda.driver().capture(stream)
        except WarplensError:
            return  # without a driver of ours there is nothing to follow
        if capture is not None:
            self._streams[stream] = self._graphs[capture.graph] = self._session.replays.graph(capture)

    def of_stream(self, stream: int) -> CapturedGraph | None:
        """The graph of the latest capture of a stream."""
        return self._streams.get(stream)

    def of_handle(self, graph: int) -> CapturedGraph | None:
        """The graph that the driver knows as `graph`."""
        return self._graphs.get(graph)

    def made(self, executable: int, graph: CapturedGraph | None) -> None:
        """An executable graph was made of `graph`; None where it was not captured in this session."""
        if graph is None:
            self._executables.pop(executable, None)
        else:
            self._executables[executable] = graph

    def replay(self, executable: int, stream: int, original: Callable[[], T]) -> T:
        result: T = self._session.replays.replay(self._executables.get(executable), stream, original)
        return result
