"""The lines of a woven PTX text that are code between regions, and the lines of the source that such code owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.labels import TERMINATORS
from warplens.ptx.source_lines import SourceLines
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Directive, Instruction, Node
from warplens.sass.between_regions import Pairs, between_regions
from warplens.sass.open_regions import RegionEdge, State
from warplens.weave.code_between import OUTSIDE
from warplens.weave.woven_ptx import Woven


def pairs_of(text: str, kernel: str) -> Pairs:
    """The regions between others of a kernel, as its woven text says; those of a warp that enters no region have no
    time, and are left out."""
    try:
        woven = Woven.read(text) or Woven(text)
        names = {0: OUTSIDE, **{number: str(name) for number, name in woven.regions.items()}}
        rows = [(names[after], names[before], names[own]) for after, before, own in woven.between.get(kernel, ())]
    except (PtxError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    return {(after, before): own for after, before, own in rows if after != before or after != OUTSIDE}


def lines_between(
    flow: ControlFlow,
    points: Mapping[int, Sequence[RegionEdge]],
    entered: Mapping[int, State],
    outer: Mapping[int, RegionEdge],
    pairs: Pairs,
) -> dict[int, set[str]]:
    """By line with an instruction, the regions between others that it is part of.

    `points` are the marks and `entered` the open regions by `id` of a node; `outer` are the clock reads at the start
    and at the exit by their line.
    """
    nodes: list[Node | None] = []
    heads: list[int] = []
    for block in flow.blocks:
        heads.append(len(nodes))
        nodes += [*block.nodes, None]  # a block may be empty
    ends = [*(head - 1 for head in heads[1:]), len(nodes) - 1]
    successors = [[at + 1] for at in range(len(nodes))]
    for block, end in zip(flow.blocks, ends, strict=True):
        successors[end] = [heads[number] for number in block.successors]
    edges = [_edges(node, points, outer) for node in nodes]
    states = [entered.get(id(node)) if node is not None else () for node in nodes]
    lines = [0 if node is None else node.line for node in nodes]
    found: dict[int, set[str]] = {}
    for node, state in zip(nodes, between_regions(successors, edges, states, lines, pairs), strict=True):
        if state and isinstance(node, Instruction):
            found.setdefault(node.line, set()).update(one.region for one in state)
    return found


def _edges(
    node: Node | None, points: Mapping[int, Sequence[RegionEdge]], outer: Mapping[int, RegionEdge]
) -> Sequence[RegionEdge]:
    if id(node) in points:
        return points[id(node)]
    return (outer[node.line],) if isinstance(node, Instruction) and node.line in outer else ()


def owned_lines(
    nodes: Sequence[Node], between: Mapping[int, set[str]], known: Mapping[int, State], files: dict[str, str]
) -> dict[tuple[str, int], set[str]]:
    """The lines of the source whose code is all in one region between others; `known` has the lines of the kernel."""
    lines = SourceLines(files)
    owners: dict[tuple[str, int], set[str]] = {}
    place: tuple[str, int] | None = None
    for node in nodes:
        if isinstance(node, Directive) and node.name == "loc":
            place = lines.of(node.arguments)
        elif isinstance(node, Instruction) and place and node.line in known and node.opcode not in TERMINATORS:
            # Code in no region at all is that of blocks and warps that record nothing.
            marked = {OUTSIDE} if known[node.line] else set()
            owners.setdefault(place, set()).update(between.get(node.line, marked))
    return {place: regions for place, regions in owners.items() if len(regions) == 1 and OUTSIDE not in regions}
