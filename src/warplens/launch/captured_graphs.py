"""CUDA graphs with woven kernels in them, known for as long as the process may replay them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from warplens.driver.libcuda import Driver, StreamCapture
from warplens.launch.graph_cells import BLOCK_CELLS, CELL_BYTES, Cells
from warplens.launch.variant import Variant
from warplens.launch.woven import WovenKernel
from warplens.record.capture import Dim3


@dataclass(frozen=True)
class NodeFunction:
    """A function that a node of a graph may run, with its bytes of dynamic shared memory."""

    handle: Any
    shared: int


@dataclass(frozen=True)
class CapturedCode:
    """What a captured launch runs."""

    kept: Any
    """What must stay loaded: the graph may outlive the session that compiled it."""
    woven: NodeFunction | None = None
    plain: NodeFunction | None = None
    """Both where the plain function takes the same arguments, so that the two can stand in for each other."""


@dataclass(frozen=True)
class CapturedNode:
    """A woven kernel of a graph."""

    kernel: WovenKernel
    variant: Variant
    """Its variant in the session that captured it; a later session has one of its own with the same identity."""
    grid: Dim3
    number: int
    """Its place among the woven kernels of the graph, which is that of its cell too."""
    weaving: object
    """What the session asked of the weaver."""
    handle: int
    """The driver's node; valid while the graph, not only its executable, is there."""
    code: CapturedCode


@dataclass(eq=False)
class CapturedGraph:
    """A graph and the cells of its woven kernels."""

    lib: Driver
    context: int
    nodes: list[CapturedNode] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    """Addresses of blocks of cells."""
    cells: int = 0
    """Cells that were handed out; a launch that failed leaves one without a node."""
    stream: int | None = None
    """Where the latest recorded replay ran."""
    event: int = 0
    """Reached when that replay is over and the cells hold 0 again."""
    executable: Callable[[], int] = field(default=lambda: 0)
    """The handle of the executable graph if its nodes can be changed: the graph it was made of is still there."""
    plain: set[int] = field(default_factory=set)
    """Nodes that run their plain function now."""

    def cell(self, number: int) -> int:
        """The address of a cell."""
        return self.blocks[number // BLOCK_CELLS] + number % BLOCK_CELLS * CELL_BYTES

    def use(self, nodes: Iterable[CapturedNode], *, plain: bool) -> bool:
        """Let later replays run the plain or the woven function of these nodes. Return whether all of them do."""
        changed = [node for node in nodes if (node.number in self.plain) is not plain]
        executable = self.executable() if changed else 0
        for node in changed:
            function = node.code.plain if plain else node.code.woven
            if not executable or not node.handle or node.code.plain is None or function is None:
                return False
            if not self.lib.set_node_function(executable, node.handle, function.handle, function.shared):
                return False
            (self.plain.add if plain else self.plain.discard)(node.number)
        return True

    def write(self, pointers: dict[int, int], stream: int) -> None:
        """Let the nodes of the next replay on `stream` find these pointers, by their numbers; the others find 0."""
        if self.event and self.stream != stream:
            # A replay on another stream may still read the cells; the driver runs replays of one graph in turn anyhow.
            self.lib.hold(stream, self.event)
        for number, address in enumerate(self.blocks):
            here = range(number * BLOCK_CELLS, min(self.cells, (number + 1) * BLOCK_CELLS))
            if any(node in pointers for node in here):
                data = b"".join(pointers.get(node, 0).to_bytes(CELL_BYTES, "little") for node in here)
                self.lib.upload(address, data, stream)

    def clear(self, stream: int) -> None:
        """Let all cells hold 0 after what was given to `stream`: a replay that nobody sees must record nothing."""
        for number, address in enumerate(self.blocks):
            count = min(self.cells - number * BLOCK_CELLS, BLOCK_CELLS)
            self.lib.clear(address, count * CELL_BYTES, stream)
        self.stream = stream
        self.event = self.event or self.lib.new_event()
        self.lib.mark(self.event, stream)


class CapturedGraphs:
    """The graphs of one process, by the number that the driver gave to their capture."""

    def __init__(self, lib: Driver) -> None:
        self.lib = lib
        self._graphs: dict[int, CapturedGraph] = {}
        self._cells: dict[int, Cells] = {}
        self._kept: dict[int, Any] = {}
        self._lock = threading.Lock()

    def of(self, capture: StreamCapture) -> CapturedGraph:
        """The graph of a capture that is under way."""
        with self._lock:
            return self._graphs.setdefault(capture.number, CapturedGraph(self.lib, self.lib.context()))

    def new_cell(self, graph: CapturedGraph) -> int:
        """The number of a new cell of a graph; several threads may launch into one capture."""
        with self._lock:
            if graph.cells >= len(graph.blocks) * BLOCK_CELLS:
                cells = self._cells.setdefault(graph.context, Cells(self.lib))
                graph.blocks.append(cells.block())
            graph.cells += 1
            return graph.cells - 1

    def keep(self, code: CapturedCode) -> None:
        """Let what a graph runs stay loaded for good: a replay may still be under way when the graph is gone."""
        self._kept[id(code.kept)] = code.kept

    def forget(self, capture: StreamCapture) -> None:
        """The graph of a capture is gone."""
        self._graphs.pop(capture.number, None)


_known: dict[int, CapturedGraphs] = {}


def captured_graphs(lib: Driver) -> CapturedGraphs:
    """The graphs that were captured through a driver."""
    return _known.setdefault(id(lib), CapturedGraphs(lib))
