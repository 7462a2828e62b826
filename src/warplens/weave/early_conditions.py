"""Compute a branch condition before the mark that precedes the branch.

ptxas does not move instructions up across a clock read. A predicate is ready 13 cycles after it is set, so a loop that
ends in a mark would wait that long in every iteration for a condition that is available much earlier without the mark.
Loop control belongs to no region, so it moves before the mark, where ptxas can schedule it at no cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warplens.ptx.operands import names, read_by, written_by
from warplens.ptx.tree import Comment, Declaration, Instruction, Label, Node, Scope
from warplens.weave.mark_comments import PREFIX
from warplens.weave.mark_sites import BRANCHES, NodePosition

_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "min", "max", "setp", "mov"}
)  # fmt: skip
_FLOAT = re.compile(r"b?f\d+(x2)?|cc")
_CHANGING = re.compile(r"%(clock|globaltimer|pm\d|smid|warpid)")


def make_early(marks: list[NodePosition]) -> None:
    """Move the computation of the next branch's condition before `marks`, which share one clock read, if possible."""
    holder = marks[0].holder
    front, last = (next(i for i, node in enumerate(holder) if node is marks[end].node) for end in (0, -1))
    behind = _up_to_jump(holder[last + 1 :])
    wanted = _leads_to(behind)
    written: set[str] = set()
    read = {name for mark in marks for name in names(mark.node.raw)}
    for node in behind:
        makes, needs = (set().union(*(part(i) for i in _instructions(node))) for part in (written_by, read_by))
        if any(node is other for other in wanted) and not makes & (written | read) and not needs & written:
            NodePosition(holder, node).remove()
            holder.insert(front, node)
            front += 1
        else:
            written |= makes
            read |= needs


def _up_to_jump(nodes: list[Node]) -> list[Node]:
    """The nodes up to and including the first conditional branch.

    Empty if a mark, a label or a declaration comes first.
    """
    for number, node in enumerate(nodes):
        if isinstance(node, Instruction) and node.opcode in BRANCHES:
            return nodes[: number + 1] if node.opcode == "bra" and node.predicate else []
        if isinstance(node, Label | Declaration) or (isinstance(node, Comment) and node.content.startswith(PREFIX)):
            return []
        if isinstance(node, Scope) and any(i.opcode in BRANCHES for i in _instructions(node)):
            return []
    return []


def _leads_to(nodes: list[Node]) -> list[Node]:
    """The integer arithmetic that computes the condition of the branch at the end of `nodes`."""
    jump = nodes[-1] if nodes else None
    needed = {jump.predicate} if isinstance(jump, Instruction) else set()
    found: list[Node] = []
    for node in reversed(nodes[:-1]):
        if isinstance(node, Instruction) and _is_arithmetic(node) and written_by(node) & needed:
            found.append(node)
            needed |= read_by(node)
    return found


def _is_arithmetic(instruction: Instruction) -> bool:
    floats = any(_FLOAT.fullmatch(modifier) for modifier in instruction.modifiers)
    return instruction.opcode in _ARITHMETIC and not floats and not _CHANGING.search(instruction.arguments)


def _instructions(node: Node) -> Iterable[Instruction]:
    if isinstance(node, Scope):
        return [instruction for inner in node.body for instruction in _instructions(inner)]
    return [node] if isinstance(node, Instruction) else []
