"""Compute a branch condition before the mark that precedes the branch.

ptxas does not move instructions up across a clock read. A predicate is ready 13 cycles after it is set, so a loop that
ends in a mark would wait that long in every iteration for a condition that is available much earlier without the mark.
Loop control belongs to no region, so it moves before the mark, where ptxas can schedule it at no cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warplens.ptx.operands import names, read_by, written_by
from warplens.ptx.tree import Declaration, Instruction, Label, Node, Scope
from warplens.weave.mark_comments import is_mark
from warplens.weave.mark_sites import BRANCHES, MarkSite

_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "min", "max", "setp", "selp", "mov",
     "cvt", "bfe", "bfi"}
)  # fmt: skip
_FLOAT = re.compile(r"b?f\d+(x2)?|cc")
_CHANGING = re.compile(r"%(clock|globaltimer|pm\d|smid|warpid)")


def make_early(groups: Iterable[list[MarkSite]]) -> None:
    """Move the computation of the next branch's condition before each group of marks, which share one clock read."""
    places: dict[int, dict[int, int]] = {}
    for group in groups:
        holder = group[0].position.holder
        at = places.setdefault(id(holder), {})
        if not at:
            at.update((id(node), number) for number, node in enumerate(holder))
        _move_up(holder, group, at)


def _move_up(holder: list[Node], group: list[MarkSite], places: dict[int, int]) -> None:
    """Move what can be moved before the group. Only nodes up to the next branch change places, none with marks."""
    front, last = (places[id(group[end].position.node)] for end in (0, -1))
    behind = _up_to_jump(holder, last + 1)
    wanted = {id(node) for node in _leads_to(behind)}
    written: set[str] = set()
    read = {name for mark in group for name in names(mark.position.node.raw)}
    early: list[Node] = []
    for node in behind:
        makes, needs = (set().union(*(part(i) for i in instructions_of(node))) for part in (written_by, read_by))
        if id(node) in wanted and not makes & (written | read) and not needs & written:
            early.append(node)
        else:
            written |= makes
            read |= needs
    if early:
        stop, moved = last + 1 + len(behind), {id(node) for node in early}
        holder[front:stop] = early + [node for node in holder[front:stop] if id(node) not in moved]
        places.update((id(holder[at]), at) for at in range(front, stop))


def _up_to_jump(holder: list[Node], start: int) -> list[Node]:
    """The nodes from `start` up to and including the first conditional branch.

    Empty if a mark, a label or a declaration comes first.
    """
    for number in range(start, len(holder)):
        node = holder[number]
        if isinstance(node, Instruction) and node.opcode in BRANCHES:
            return holder[start : number + 1] if node.opcode == "bra" and node.predicate else []
        if isinstance(node, Label | Declaration) or is_mark(node):
            return []
        if isinstance(node, Scope) and any(i.opcode in BRANCHES for i in instructions_of(node)):
            return []
    return []


def _leads_to(nodes: list[Node]) -> list[Node]:
    """The integer arithmetic that computes the condition of the branch at the end of `nodes`."""
    jump = nodes[-1] if nodes else None
    needed = {jump.predicate} if isinstance(jump, Instruction) else set()
    found: list[Node] = []
    for node in reversed(nodes[:-1]):
        if isinstance(node, Instruction) and is_integer_arithmetic(node) and written_by(node) & needed:
            found.append(node)
            needed |= read_by(node)
    return found


def is_integer_arithmetic(instruction: Instruction) -> bool:
    """Whether an instruction only computes an integer or a predicate from registers."""
    floats = any(_FLOAT.fullmatch(modifier) for modifier in instruction.modifiers)
    return instruction.opcode in _ARITHMETIC and not floats and not _CHANGING.search(instruction.arguments)


def instructions_of(node: Node) -> Iterable[Instruction]:
    """The instructions of a node: its own, or those inside its braces."""
    if isinstance(node, Scope):
        return [instruction for inner in node.body for instruction in instructions_of(inner)]
    return [node] if isinstance(node, Instruction) else []
