"""Where `mode="aggregate"` adds up the executions of the rows that stay in registers (register_rows.py).

An execution takes some dozen instructions, and where they come decides what they cost:

    at the end    right after the clock read of the end: of short regions, whose own code is too short to hide them
    late          after the next begin, while the region's own code runs: of regions with enough code
    gathered      after the last clock read of the block: next to asynchronous matrix products, which the code between
                  two marks starts or waits for. Instructions behind the last mark are in the way of neither

Next to products, all executions are gathered in blocks of several warpgroups. In blocks of one, only those of the
region that ends last are, and regions that wait are late. On an H200, a GEMM with 8 warps takes 1.006 of its plain time
with the former and 1.048 with the latter; a GEMM with 4 warps 1.025 and 1.016, attention with 4 warps 1.155 and 1.129.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from warplens.ptx.tree import Comment, Function, Instruction, Node
from warplens.record.layout import Kind
from warplens.weave.early_addresses import is_wait
from warplens.weave.mark_comments import parse_mark
from warplens.weave.mark_sites import BRANCHES, MarkBlock, MarkSite, Outline
from warplens.weave.weaving import Weaving

LONG_REGION = 24
"""PTX instructions of a region that hide the dozen that add up an execution."""
WARPGROUP = 128


class SumPlaces:
    """The rows of one kernel that are late, and the blocks that gather. `row_of` tells the row of a mark, if it has
    one."""

    def __init__(
        self, function: Function, sketch: Outline, row_of: Callable[[MarkSite], int | None], how: Weaving
    ) -> None:
        self._row_of = row_of
        self._gathering = {id(block) for block in sketch.blocks if _has_products(block)}
        both = how.sums == "both" or (how.sums == "auto" and bool(self._gathering) and _is_one_warpgroup(function))
        nodes = list(function.walk())
        self.timed = self._long(nodes, sketch, waits=True)
        """The rows of regions that are long or wait for something: no execution takes 0 cycles."""
        long = self.timed if both else self._long(nodes, sketch, waits=False)
        self.late = long - self._gathered(sketch, all_of=not both)

    def gathers(self, block: MarkBlock) -> bool:
        """Whether the block's executions are added up after its last clock read."""
        return id(block) in self._gathering

    def _gathered(self, sketch: Outline, *, all_of: bool) -> set[int]:
        """The rows of regions that end in a block that gathers, or at its last mark."""
        found: set[int] = set()
        for block in filter(self.gathers, sketch.blocks):
            sites = block.sites if all_of else block.groups(True)[-1]
            found |= {row for site in sites if site.mark.kind is Kind.END and (row := self._row_of(site)) is not None}
        return found

    def _long(self, nodes: list[Node], sketch: Outline, *, waits: bool) -> set[int]:
        """The rows of regions that have enough code behind each of their begins, or with `waits`, a wait."""
        at = {id(node): number for number, node in enumerate(nodes)}
        long: dict[int, bool] = {}
        for site in sketch.sites:
            row = self._row_of(site)
            if site.mark.kind is Kind.BEGIN and row is not None:
                behind = nodes[at[id(site.position.node)] + 1 :]
                long[row] = long.get(row, True) and _is_long(behind, site.mark.name, waits=waits)
        return {row for row, enough in long.items() if enough}


def _is_long(nodes: list[Node], name: str, *, waits: bool) -> bool:
    """Whether the end mark `name` is not within a few instructions of the same block."""
    count = 0
    for node in nodes:
        if isinstance(node, Comment):
            mark = parse_mark(node.content, node.line)
            if mark is not None and mark.kind is Kind.END and mark.name == name:
                return False
        elif isinstance(node, Instruction):
            count += 1
            if count >= LONG_REGION or node.opcode in BRANCHES or (waits and is_wait(node)):
                return True
    return True


def _has_products(block: MarkBlock) -> bool:
    return any("mma_async" in instruction.modifiers for instruction in block.inside)


def _is_one_warpgroup(function: Function) -> bool:
    sizes = function.performance.get("reqntid") or function.performance.get("maxntid")
    return sizes is not None and math.prod(sizes) <= WARPGROUP
