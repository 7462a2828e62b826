"""Loops of a function, and those that only wait: for a flag, a lock or an mbarrier that they test in each round."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from warplens.ptx.tree import Instruction, Label, Node

MEMORY, BARRIER = "polls", "waits"
_LONGEST = 24
_MOST_NODES = 8 * _LONGEST
"""Instructions of a polling loop, and its lines with comments and the like."""
_IDLE = frozenset({
    "setp", "selp", "mov", "and", "or", "not", "xor", "cvt", "cvta", "bra", "nanosleep", "membar", "fence", "shl",
    "shr", "add", "sub", "ld", "atom", "mbarrier", "bar", "barrier", "vote", "activemask",
})  # fmt: skip
_REREAD = frozenset({"volatile", "acquire", "relaxed", "mmio"})
_TRIED = frozenset({"cas", "exch"})


@dataclass(frozen=True)
class Loops:
    """`depths` says of each node how many loops it is in, apart from those that only poll. `waits` says of the first
    test in each loop that only polls what it polls: `polls` (memory) or `waits` (an mbarrier)."""

    depths: list[int]
    waits: dict[int, str]


def find_loops(nodes: Sequence[Node]) -> Loops:
    """The loops of a function, by its nodes in text order."""
    labels: dict[str, int] = {}
    waits: dict[int, str] = {}
    steps: dict[int, int] = {}
    for at, node in enumerate(nodes):
        if isinstance(node, Label):
            labels[node.name] = at
        elif labels and isinstance(node, Instruction) and node.opcode == "bra" and node.operands:
            begin = labels.get(node.operands[-1].strip())
            if begin is None:
                continue
            body = nodes[begin:at] if at - begin <= _MOST_NODES else ()
            if kind := polled([one for one in body if isinstance(one, Instruction)]):
                waits[next(i for i in range(begin, at) if _tests(nodes[i]))] = kind
            else:
                steps[begin] = steps.get(begin, 0) + 1
                steps[at + 1] = steps.get(at + 1, 0) - 1
    deltas = [steps.get(at, 0) for at in range(len(nodes))] if steps else [0] * len(nodes)
    return Loops(list(itertools.accumulate(deltas)) if steps else deltas, waits)


def _tests(node: Node) -> bool:
    return isinstance(node, Instruction) and node.opcode in ("ld", "atom", "mbarrier")


def polled(body: Sequence[Instruction]) -> str:
    """`polls` or `waits` for the instructions of a loop that polls memory or an mbarrier and does nothing else."""
    if len(body) > _LONGEST or any(one.opcode not in _IDLE for one in body):
        return ""
    if any(one.opcode == "mbarrier" and {"try_wait", "test_wait"} & set(one.modifiers) for one in body):
        return BARRIER
    reads = [one for one in body if one.opcode == "ld" and "param" not in one.modifiers]
    if any(not _REREAD & set(one.modifiers) for one in reads):
        return ""
    tried = [one for one in body if one.opcode == "atom"]
    if any(not _TRIED & set(one.modifiers) for one in tried):
        return ""
    return MEMORY if reads or tried else ""
