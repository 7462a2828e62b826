"""Loops that do nothing but wait: they read a flag, try a lock or test an mbarrier until it lets them go on."""

from __future__ import annotations

from collections.abc import Sequence

from warplens.ptx.tree import Instruction, Label, Node

MEMORY, BARRIER = "polls", "waits"
_LONGEST = 24
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
        if begin is None:
            return ""
        body = [one for one in self._nodes[begin:at] if isinstance(one, Instruction)]
        return polled(body)


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
