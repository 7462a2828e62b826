"""The control-flow graph of a function: basic blocks, their successors, reachability and postdominators."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, field

from warplens.ptx.dominators import DominatorTree, predecessors, reached
from warplens.ptx.labels import JUMPS, TERMINATORS, jump_targets
from warplens.ptx.tree import Function, Instruction, Label, Node, walk

_BARRIERS = frozenset({"bar", "barrier"})


@dataclass
class BasicBlock:
    """Consecutive nodes that control enters only at the first and leaves only after the last.

    A barrier also starts a block. `nodes` includes comments and directives.
    """

    nodes: list[Node] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)

    @property
    def instructions(self) -> list[Instruction]:
        return [node for node in self.nodes if isinstance(node, Instruction)]

    @property
    def predicate(self) -> str | None:
        """The predicate of the last instruction, which selects the successor."""
        last = self.nodes[-1] if self.nodes else None
        return last.predicate if isinstance(last, Instruction) else None

    @property
    def is_indirect(self) -> bool:
        """Whether it ends with a jump through a table."""
        last = self.nodes[-1] if self.nodes else None
        return isinstance(last, Instruction) and last.opcode == "brx"


def is_barrier(node: Node) -> bool:
    """Whether all lanes of a warp wait for each other at this instruction."""
    if not isinstance(node, Instruction) or node.opcode not in _BARRIERS or node.predicate:
        return False
    if "warp" in node.modifiers:
        return node.operands in (("0xffffffff",), ("-1",), ("4294967295",))
    return "cluster" not in node.modifiers and bool({"sync", "red"} & set(node.modifiers))


class ControlFlow:
    """A function's basic blocks in text order. The last block is empty and stands for the function's end."""

    def __init__(self, function: Function) -> None:
        self.blocks, self._block_of = _basic_blocks(function)

    def block_of(self, node: Node) -> int | None:
        """The number of the block that contains `node`."""
        return self._block_of.get(id(node))

    def reachable(self, starts: list[int], avoiding: Collection[int] = ()) -> set[int]:
        """The blocks that can be reached from `starts` without entering a block of `avoiding`."""
        return reached(self.successors, starts, avoiding)

    @functools.cached_property
    def successors(self) -> list[list[int]]:
        return [block.successors for block in self.blocks]

    @functools.cached_property
    def predecessors(self) -> list[list[int]]:
        return predecessors(self.successors)

    @functools.cached_property
    def dominators(self) -> DominatorTree:
        return DominatorTree(self.successors, 0)

    @functools.cached_property
    def postdominators(self) -> DominatorTree:
        return DominatorTree(self.predecessors, len(self.blocks) - 1)


def _basic_blocks(function: Function) -> tuple[list[BasicBlock], dict[int, int]]:
    """The blocks, and the number of each node's block by the node's `id`."""
    blocks = [BasicBlock()]
    nodes = blocks[0].nodes

    def start() -> list[Node]:
        blocks.append(BasicBlock())
        return blocks[-1].nodes

    for node in walk(function.body or []):
        if isinstance(node, Instruction):
            if nodes and node.opcode in _BARRIERS and is_barrier(node):
                nodes = start()
            nodes.append(node)
            if node.opcode in TERMINATORS:
                nodes = start()
        else:
            if nodes and isinstance(node, Label):
                nodes = start()
            nodes.append(node)
    start()
    block_of = {id(node): number for number, block in enumerate(blocks) for node in block.nodes}
    ends = [block.nodes[-1] if block.nodes else None for block in blocks]
    jumps = any(isinstance(last, Instruction) and last.opcode in JUMPS for last in ends)
    targets = jump_targets(function) if jumps else {}
    for number, (block, last) in enumerate(zip(blocks[:-1], ends[:-1], strict=True)):
        if not isinstance(last, Instruction) or last.opcode not in TERMINATORS:
            block.successors = [number + 1]
            continue
        block.successors = [block_of[id(label)] for label in targets.get(id(last), ())] or [len(blocks) - 1]
        if last.predicate:
            block.successors.append(number + 1)
    _connect_endless_loops(blocks)
    return blocks, block_of


def _connect_endless_loops(blocks: list[BasicBlock]) -> None:
    """Give each endless loop an edge to the end, so that every block has a postdominator."""
    entering = predecessors([block.successors for block in blocks])
    reaches_end: set[int] = set()
    for start in reversed(range(len(blocks))):
        if start in reaches_end:
            continue
        if start < len(blocks) - 1:
            blocks[start].successors.append(len(blocks) - 1)
        reaches_end |= reached(entering, [start], avoiding=reaches_end)
