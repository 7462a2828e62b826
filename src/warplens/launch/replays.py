"""CUDA graphs in one session: kernels that are captured, and the replays that are recorded.

A captured kernel finds its buffer by a cell in device memory. Before a replay that is recorded, one small copy on its
stream writes the cells; after it they are zeroed, so a replay that is not recorded costs no copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from warplens.driver import libcuda
from warplens.driver.libcuda import StreamCapture
from warplens.errors import WarplensError
from warplens.launch.buffers import Buffers
from warplens.launch.captured_graphs import CapturedCode, CapturedGraph, CapturedNode, captured_graphs
from warplens.launch.collected_run import CollectedRun
from warplens.launch.lent_launch import LentLaunch
from warplens.launch.variant import Variant, Variants
from warplens.launch.weaving_options import weaving
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.options import Options
from warplens.record.capture import Dim3

T = TypeVar("T")

GRAPH, NODE = "graph", "node"
"""Where a launch's `extra` says which graph of the session, and which woven kernel of it, was replayed."""
GRAPHS = "CUDA graphs"
"""The subject of notes about all graphs."""


class CapturedLaunch(LentLaunch):
    """A launch that goes into a graph. `pointer` is the address of a new cell, which holds the buffer's own address; if
    the launch fails, the cell stays unused."""

    def __init__(
        self,
        graph: CapturedGraph,
        kernel: WovenKernel,
        variant: Variant,
        grid: Dim3,
        how: object,
        stream: int,
        code: CapturedCode,
    ) -> None:
        number = captured_graphs(graph.lib).new_cell(graph)
        self.pointer = graph.cell(number)
        self._graph, self._stream = graph, stream
        self._node = CapturedNode(kernel, variant, grid, number, how, 0, code)

    def launched(self) -> None:
        added = self._graph.lib.capture(self._stream)
        self._graph.nodes.append(replace(self._node, handle=0 if added is None else added.node))


class Replays:
    """The graphs that one session captures and replays."""

    def __init__(self, options: Options, run: CollectedRun, variants: Variants, buffers: Buffers) -> None:
        self._options, self._run, self._variants, self._buffers = options, run, variants, buffers
        self._weaving: Hashable = (options.marks, weaving(options), options.buffer, options.bytes_per_block)
        self._numbers: dict[CapturedGraph, int] = {}
        self._resting: set[CapturedGraph] = set()
        """Graphs of which nothing more is recorded."""
        self._lock = threading.Lock()
        self._replaying = threading.local()

    def captured(
        self, kernel: WovenKernel, variant: Variant, grid: Dim3, stream: int, code: CapturedCode
    ) -> CapturedLaunch | None:
        """A launch into the graph that `stream` is captured into; None where none of its blocks is to be recorded."""
        lib = libcuda.driver()
        capture = lib.capture(stream)
        if capture is None or not kernel.tracks(grid):
            return None
        graphs = captured_graphs(lib)
        graphs.keep(code)
        graph = graphs.of(capture)
        self._number(graph)
        return CapturedLaunch(graph, kernel, variant, grid, self._weaving, stream, code)

    def graph(self, capture: StreamCapture) -> CapturedGraph:
        """The graph of a capture that has begun, for `replay`."""
        graph = captured_graphs(libcuda.driver()).of(capture)
        self._number(graph)
        return graph

    def replay(self, graph: CapturedGraph | None, stream: int, original: Callable[[], T]) -> T:
        """Replay a graph by `original`, and record those of its kernels whose quota wants it.

        A replay may be seen twice, by the library that makes it and by the driver's hooks: the outer one counts.
        """
        if getattr(self._replaying, "here", False):
            return original()
        self._replaying.here = True
        try:
            return self._replay(graph, stream, original)
        finally:
            self._replaying.here = False

    def _replay(self, graph: CapturedGraph | None, stream: int, original: Callable[[], T]) -> T:
        launches = self._begin(graph, stream)
        if not launches or graph is None:
            return original()
        try:
            result = original()
        except BaseException as error:
            self._end(graph, stream, launches, error)
            raise
        self._end(graph, stream, launches, None)
        return result

    def _number(self, graph: CapturedGraph) -> int:
        with self._lock:
            return self._numbers.setdefault(graph, len(self._numbers))

    def _begin(self, graph: CapturedGraph | None, stream: int) -> dict[int, WovenLaunch]:
        """Choose the nodes to record, and let the next replay on `stream` find their memory."""
        if graph is None:
            self._run.note(GRAPHS, "a graph that was not captured inside the profile is replayed; it runs unmarked")
            return {}
        launches: dict[int, WovenLaunch] = {}
        try:
            wanted = [(node, variant) for node in graph.nodes if (variant := self._wanted(node)) is not None]
            lib = graph.lib
            if not wanted:
                self._rest(graph)
                return {}
            with lib.relaxed(), lib.inside(graph.context):
                if not graph.use([node for node, _ in wanted], plain=False):
                    self._put_back(wanted)
                    return {}
                if lib.is_capturing(stream):  # the graph becomes a part of another one
                    self._put_back(wanted)
                    return {}
                for node, variant in wanted:
                    self._lend(graph, node, variant, stream, launches)
                if launches:
                    graph.write({number: launch.pointer for number, launch in launches.items()}, stream)
        except WarplensError as problem:
            for launch in launches.values():
                launch.__exit__(WarplensError)
            self._run.note(GRAPHS, f"a replay was not recorded: {problem}")
            return {}
        return launches

    def _rest(self, graph: CapturedGraph) -> None:
        """Give kernels whose quota is used up their plain functions back, where the driver can."""
        if graph in self._resting:
            return
        done = [node for node in graph.nodes if not self._variants.is_open(self._variants.same(node.variant))]
        if len(done) == len(graph.nodes):
            self._resting.add(graph)
            if not self._make_plain(graph):
                names = ", ".join(sorted({node.kernel.name for node in done}))
                self._run.note(
                    GRAPHS,
                    f"{names}: replays beyond the quota run the woven kernel without recording; "
                    "the library does not give access to the graph's nodes",
                )

    def rest_all(self) -> None:
        """The session ends: replays that follow run plain functions where the driver can do that."""
        for graph in self._numbers:
            with suppress(WarplensError):
                self._make_plain(graph)

    @staticmethod
    def _make_plain(graph: CapturedGraph) -> bool:
        with graph.lib.relaxed(), graph.lib.inside(graph.context):
            return graph.use(graph.nodes, plain=True)

    def _wanted(self, node: CapturedNode) -> Variant | None:
        """The node's variant in this session, if this replay of it is to be recorded; counts the launch."""
        variant = self._variants.same(node.variant)
        if node.weaving != self._weaving:
            variant.launches += 1
            if self._options.wants_kernel(variant.kernel):
                text = "its replays are not recorded: the graph was captured by a profile with other options"
                self._run.note(variant.kernel, text)
            return None
        return variant if self._variants.wants_replay(variant) else None

    def _lend(
        self, graph: CapturedGraph, node: CapturedNode, variant: Variant, stream: int, launches: dict[int, WovenLaunch]
    ) -> None:
        place = {GRAPH: self._number(graph), NODE: node.number}
        # A large graph may not find memory for all of its kernels at once: the others come with a later replay.
        try:
            launch = self._buffers.lend(node.kernel, variant, node.grid, stream, place=place, refuse=not launches)
        except WarplensError as problem:
            variant.closed = True
            self._run.note(variant.kernel, f"its replays are not recorded: {problem}")
            launch = None
        if launch is None:
            self._put_back([(node, variant)])
        else:
            launches[node.number] = launch

    @staticmethod
    def _put_back(wanted: list[tuple[CapturedNode, Variant]]) -> None:
        for _, variant in wanted:
            variant.recorded -= 1

    @staticmethod
    def _end(graph: CapturedGraph, stream: int, launches: dict[int, WovenLaunch], error: BaseException | None) -> None:
        with graph.lib.relaxed(), graph.lib.inside(graph.context):
            try:
                graph.clear(stream)
            finally:
                for launch in launches.values():
                    launch.__exit__(None if error is None else type(error))
