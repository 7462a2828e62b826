"""Loops of a function, and those that only wait: for a flag, a lock or an mbarrier that they test in each round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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


class PollingLoops:
    """Call `see` for each node of a function in text order."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._labels: dict[str, int] = {}

    def see(self, at: int) -> str:
        """`polls` or `waits` if node `at` is the branch back of a loop that polls memory or an mbarrier; else ""."""
        node = self._nodes[at]
        if isinstance(node, Label):
            self._labels[node.name] = at
        if not isinstance(node, Instruction) or node.opcode != "bra" or not node.operands:
            return ""
        begin = self._labels.get(str(node.operands[-1]).strip())
        if begin is None or at - begin > _MOST_NODES:
            return ""
        body = [one for one in self._nodes[begin:at] if isinstance(one, Instruction)]
        return polled(body)


def loop_depths(nodes: Sequence[Node]) -> list[int]:
    """For each node, how many loops it is in; loops that only poll do not count."""
    loops, labels = PollingLoops(nodes), dict[str, int]()
    steps = np.zeros(len(nodes) + 1, np.int64)
    for at, node in enumerate(nodes):
        waits = loops.see(at)
        if isinstance(node, Label):
            labels[node.name] = at
        elif isinstance(node, Instruction) and node.opcode == "bra" and node.operands and not waits:
            begin = labels.get(node.operands[-1].strip())
            if begin is not None:
                steps[begin] += 1
                steps[at + 1] -= 1
    return [int(depth) for depth in np.cumsum(steps[:-1])]


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
