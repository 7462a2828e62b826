"""Loops that only wait: for a flag, a lock or an mbarrier that they test in each round."""

from __future__ import annotations

from collections.abc import Sequence

from warplens.ptx.tree import Instruction, Node

MEMORY, BARRIER = "polls", "waits"
_LONGEST = 24
"""Instructions of a polling loop."""
_IDLE = frozenset({
    "setp", "selp", "mov", "and", "or", "not", "xor", "cvt", "cvta", "bra", "nanosleep", "membar", "fence", "shl",
    "shr", "add", "sub", "ld", "atom", "mbarrier", "bar", "barrier", "vote", "activemask",
})  # fmt: skip
_REREAD = frozenset({"volatile", "acquire", "relaxed", "mmio"})
_TRIED = frozenset({"cas", "exch"})


def tests(node: Node) -> bool:
    """Whether an instruction of a polling loop reads what the loop waits for."""
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
