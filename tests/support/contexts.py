"""What every driver without a GPU has in common: contexts, streams, events, and memory of the interpreter."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warplens.driver.libcuda import StreamCapture
from warplens.errors import WarplensError
from warplens.simulate.global_memory import GLOBAL_BASE

_handles = itertools.count(1)
_thread = threading.local()


@dataclass
class GraphLaunch:
    """A node of a graph: what it runs, and how."""

    function: Any
    run: Callable[[Any], None]


@dataclass
class StreamGraph:
    """Launches that were captured; replaying it runs them."""

    number: int
    launches: list[GraphLaunch] = field(default_factory=list)

    def replay(self) -> None:
        for launch in self.launches:
            launch.run(launch.function)


@dataclass
class StreamGraphs:
    """What is captured, by stream. Several streams may be captured into one graph."""

    captures: dict[int, StreamGraph] = field(default_factory=dict)
    relaxed: threading.local = field(default_factory=threading.local)
    nodes: dict[int, GraphLaunch] = field(default_factory=dict)
    """By handle, every node of every graph."""
    invalid: list[str] = field(default_factory=list)
    """Calls that made a capture invalid."""

    def begin(self, *streams: int) -> StreamGraph:
        """Capture what goes to these streams from now on."""
        graph = StreamGraph(next(_handles))
        self.captures.update(dict.fromkeys(streams, graph))
        return graph

    def end(self, graph: StreamGraph) -> None:
        """Run what goes to the streams of a graph from now on."""
        self.captures = {stream: one for stream, one in self.captures.items() if one is not graph}
        problems, self.invalid = self.invalid, []
        if problems:
            raise RuntimeError(f"the capture was invalidated by {problems}")

    def run(self, stream: int, function: Any, launch: Callable[[Any], None]) -> None:
        """Launch a function, or add the launch to the graph of its stream."""
        graph = self.captures.get(stream)
        if graph is None:
            launch(function)
        else:
            graph.launches.append(GraphLaunch(function, launch))
            self.nodes[next(_handles)] = graph.launches[-1]

    def last(self, graph: StreamGraph) -> int:
        """The handle of the node that was added last."""
        return next((key for key, node in self.nodes.items() if graph.launches and node is graph.launches[-1]), 0)


class Contexts:
    """`current` is the context of the GPU that calls go to; a test may move on to another. Work is done at once, so
    events are reached when they are marked. Memory is that of `space`, an interpreter's."""

    current = 1
    space: Any
    free_memory = 1 << 27

    def context(self) -> int:
        """The context of this thread: that of an `inside` it is in, else the one that is current for all."""
        return getattr(_thread, "context", None) or self.current

    def device_index(self) -> int:
        return self.context() - 1

    @contextmanager
    def inside(self, context: int) -> Iterator[None]:
        before, _thread.context = getattr(_thread, "context", None), context
        try:
            yield
        finally:
            _thread.context = before

    def memory(self) -> tuple[int, int]:
        return self.free_memory, self.free_memory

    def allocate(self, size: int) -> int:
        self.check_safe("cuMemAlloc")
        try:
            return int(self.space.alloc(size))
        except Exception as error:
            raise WarplensError(f"cuMemAlloc failed: {error}") from None

    def free(self, address: int) -> None:
        """The interpreter's memory is not given back."""

    def clear(self, address: int, size: int, stream: int) -> None:
        assert not self.is_capturing(stream), "the memset would go into the graph"
        words = self.space.words(8)[(address - GLOBAL_BASE) // 8 : -(-(address - GLOBAL_BASE + size) // 8)]
        if words.any() or not self.space.holds(address, address + size):  # a new slab of 64 MiB stays untouched
            self.space.write(address, np.zeros(size, np.uint8))

    def clear_rows(self, address: int, pitch: int, width: int, rows: int, stream: int) -> None:
        for row in range(rows if width else 0):
            self.space.write(address + row * pitch, np.zeros(width, np.uint8))

    def copy_rows(
        self, host: int, out_pitch: int, address: int, pitch: int, width: int, rows: int, stream: int
    ) -> None:
        for row in range(rows):
            data = self.space.read(address + row * pitch, np.uint8, width).tobytes()
            ctypes.memmove(host + row * out_pitch, data, width)

    def pinned(self, size: int) -> int:
        self.check_safe("cuMemHostAlloc")
        if not hasattr(self, "_pinned"):
            self._pinned: list[Any] = []
        self._pinned.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self._pinned[-1])

    def free_pinned(self, address: int) -> None:
        self._pinned = [one for one in self._pinned if ctypes.addressof(one) != address]

    def stream(self) -> int:
        return next(_handles)

    def destroy_stream(self, stream: int) -> None: ...

    def new_event(self) -> int:
        return next(_handles)

    def destroy_event(self, event: int) -> None: ...

    def mark(self, event: int, stream: int) -> None:
        assert not self.is_capturing(stream), "the event would go into the graph"

    def reached(self, event: int) -> bool:
        self.check_safe("cuEventQuery")
        return True

    def wait(self, event: int) -> None:
        self.check_safe("cuEventSynchronize")

    def hold(self, stream: int, event: int) -> None:
        assert not self.is_capturing(stream), "an event from outside ends the capture with an error"

    def event(self, stream: int) -> int:
        self.mark(0, stream)
        return self.new_event()

    def elapsed_ns(self, first: int, second: int) -> float:
        return 0.0

    def synchronize(self) -> None:
        self.check_safe("cuCtxSynchronize")

    def is_idle(self, stream: int) -> bool:
        return False

    def upload(self, address: int, data: bytes, stream: int) -> None:
        assert not self.is_capturing(stream), "the copy would go into the graph"
        self.space.write(address, np.frombuffer(data, np.uint8))
        self.uploads = getattr(self, "uploads", 0) + 1

    @property
    def graphs(self) -> StreamGraphs:
        """The captures of this driver."""
        if not hasattr(self, "_graphs"):
            self._graphs = StreamGraphs()
        return self._graphs

    def speed_up(self) -> None: ...

    def runs_now(self, stream: int, context: int) -> bool:
        return self.context() == context and not self.is_capturing(stream)

    def launch_calls(self) -> tuple[int, int, int, int]:
        """What launches in C call: functions that call this object, which keeps them."""

        def current(out: int) -> int:
            ctypes.c_uint64.from_address(out).value = self.context()
            return 0

        def capturing(stream: int | None, out: int) -> int:
            ctypes.c_int.from_address(out).value = self.is_capturing(stream or 0)
            return 0

        def record(event: int, stream: int | None) -> int:
            try:
                self.mark(event, stream or 0)
            except WarplensError:
                return 700
            return 0

        at, kind = ctypes.c_void_p, functools.partial(ctypes.CFUNCTYPE, ctypes.c_int)
        self._launch_calls = kind(at)(current), kind(at, at)(capturing), kind(at, at)(record)
        a, b, c = (ctypes.cast(call, at).value or 0 for call in self._launch_calls)
        return a, b, c, 0

    def new_events(self, count: int) -> list[int]:
        return [self.new_event() for _ in range(count)]

    def is_capturing(self, stream: int) -> bool:
        return stream in self.graphs.captures

    def capture(self, stream: int) -> StreamCapture | None:
        graph = self.graphs.captures.get(stream)
        return None if graph is None else StreamCapture(graph.number, graph.number, self.graphs.last(graph))

    def set_node_function(self, executable: int, node: int, function: Any, shared: int) -> bool:
        self.graphs.nodes[node].function = function
        return True

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        before, self.graphs.relaxed.on = getattr(self.graphs.relaxed, "on", False), True
        try:
            yield
        finally:
            self.graphs.relaxed.on = before

    def check_safe(self, call: str) -> None:
        """While any stream is captured, the driver refuses calls that are not safe, except in a relaxed thread."""
        if self.graphs.captures and not getattr(self.graphs.relaxed, "on", False):
            self.graphs.invalid.append(call)
            raise WarplensError(f"{call} failed: operation not permitted when stream is capturing (CUDA error 900)")
