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
    if len(body) > _LONGEST or any(one.opcode not in _IDLE and not _in_shared(one, "st") for one in body):
        return ""
    if any(one.opcode == "mbarrier" and {"try_wait", "test_wait"} & set(one.modifiers) for one in body):
        return BARRIER
    tried = [one for one in body if one.opcode == "atom"]
    if any(not _TRIED & set(one.modifiers) for one in tried):
        return ""
    reads = [one for one in body if one.opcode == "ld" and "param" not in one.modifiers]
    again = [one for one in reads if _REREAD & set(one.modifiers)]
    # What one thread has read or tried, it may tell the others of its block through shared memory.
    told = tried or any(not _in_shared(one, "ld") for one in again)
    if any(one not in again and not (told and _in_shared(one, "ld")) for one in reads):
        return ""
    if any(one.opcode == "st" for one in body) and not told:
        return ""
    return MEMORY if reads or tried else ""


def _in_shared(one: Instruction, opcode: str) -> bool:
    """Whether it is a plain load or store of shared memory."""
    return one.opcode == opcode and any(name.partition("::")[0] == "shared" for name in one.modifiers)
