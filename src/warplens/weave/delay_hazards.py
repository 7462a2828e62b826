"""Find places where a delay would mean something else than time spent in a region.

Between taking and releasing a lock, a delay of one warp holds up every other warp that wants the lock. In a branch that
one elected lane takes, the other lanes of the warp wait or go on without it, so that neither the length of the delay
nor the number of its executions is known. Both are refused. Waits at barriers and mbarriers are no hazard: a delay
before one ends by itself, and no other warp's progress depends on how long it takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.divergent_blocks import BlocksBetween
from warplens.ptx.operands import names, written_by
from warplens.ptx.tree import Function, Instruction, Node

LOCKED = "the region lies between taking and releasing a lock, and a delay there would hold up every warp that waits"
ELECTED = "the region is in a branch that one elected lane of a warp takes, so its delay is not that of the warp"

_LANE = re.compile(r"%(?:tid\.[xyz]|laneid)\b")
_INTEGER = frozenset({"mov", "and", "or", "add", "sub", "cvt", "bfe", "mad", "mul", "shl", "xor", "rem", "shr", "not"})
"""Instructions whose result still tells lanes apart if an operand does."""
_WARP_BITS, _LANE_BITS = 5, 31


def why_not(function: Function, flow: ControlFlow, places: Sequence[Node]) -> str:
    """Say why no delay may be put at one of `places`; empty where it may."""
    blocks = {flow.block_of(place) for place in places}
    held = _held(flow)
    if any(id(place) in held for place in places):
        return LOCKED
    return ELECTED if blocks & _elected(flow) else ""


def _held(flow: ControlFlow) -> set[int]:
    """The nodes (by identity) that can be reached from the taking of a lock without passing its release."""
    taken = _acquisitions(flow)
    found: set[int] = set()
    entered: dict[int, set[str]] = {}
    work = [(number, frozenset[str]()) for number in range(len(flow.blocks))] if taken else []
    while work:
        number, before = work.pop()
        known = entered.get(number)
        if known is not None and before <= known:
            continue
        locks = entered[number] = (known or set()) | before
        locks = set(locks)
        for node in flow.blocks[number].nodes:
            if isinstance(node, Instruction):
                if id(node) in taken:
                    locks.add(taken[id(node)])
                else:
                    locks -= {lock for lock in locks if _releases(node, lock)}
            if locks:
                found.add(id(node))
        work += [(after, frozenset(locks)) for after in flow.blocks[number].successors]
    return found


def _acquisitions(flow: ControlFlow) -> dict[int, str]:
    """The instructions (by identity) that take a lock, with its address: an exchange in a loop, and a release later.

    A compare-and-swap that stores what it compares with only waits, and one without a release adds or counts.
    """
    out: dict[int, str] = {}
    for number, block in enumerate(flow.blocks):
        for node in block.instructions:
            if node.opcode != "atom" or not {"cas", "exch"} & set(node.modifiers) or len(node.operands) < 3:
                continue
            if "cas" in node.modifiers and len(node.operands) > 3 and node.operands[2] == node.operands[3]:
                continue
            after = flow.reachable(block.successors)
            if number in after and any(
                _releases(one, _address(node)) and one is not node
                for place in after
                for one in flow.blocks[place].instructions
            ):
                out[id(node)] = _address(node)
    return out


def _address(instruction: Instruction) -> str:
    found = next((operand for operand in instruction.operands if operand.startswith("[")), "")
    return re.sub(r"\s|\+0(?=\])", "", found)


def _releases(node: Instruction, lock: str) -> bool:
    """Whether it may release a lock: a store to its address, or an exchange, whose address may be computed again."""
    if node.opcode == "atom" and "exch" in node.modifiers:
        return True
    return node.opcode in ("st", "red", "atom") and _address(node) == lock


def _elected(flow: ControlFlow) -> set[int]:
    """The blocks that only an elected lane executes, and those that only the others do."""
    chosen = _elected_predicates(flow)
    between = BlocksBetween(flow)
    for number, block in enumerate(flow.blocks):
        if len(block.successors) > 1 and block.predicate in chosen:
            between.add(number, flow.postdominators.parent[number])
    return between.blocks


def _elected_predicates(flow: ControlFlow) -> set[str]:
    """Predicates that are true for one lane or thread alone, or for all but one."""
    lanes: set[str] = set()
    chosen: set[str] = set()
    instructions = [one for block in flow.blocks for one in block.instructions]
    grew = True
    while grew:
        before = len(lanes) + len(chosen)
        for one in instructions:
            read = " ".join(one.operands[1:])
            from_lane = bool(_LANE.search(read) or lanes & names(read))
            if one.opcode == "elect":
                chosen |= {name for name in written_by(one) if name != "_"}
            elif one.opcode == "setp":
                if (from_lane and {"eq", "ne"} & set(one.modifiers)) or chosen & names(read):
                    chosen |= written_by(one)
            elif chosen & names(read) and one.opcode in ("and", "or", "not", "selp", "mov", "xor"):
                chosen |= written_by(one)
            elif from_lane and one.opcode in _INTEGER and not _is_warp_number(one):
                lanes |= written_by(one)
        grew = len(lanes) + len(chosen) > before
    return chosen


def _is_warp_number(one: Instruction) -> bool:
    """Whether the result is the same for the 32 threads of a warp: their number without its low bits."""
    last = one.operands[-1]
    if not re.fullmatch(r"-?\d+", last):
        return False
    if one.opcode == "shr":
        return int(last) >= _WARP_BITS
    return one.opcode == "and" and int(last) & _LANE_BITS == 0
