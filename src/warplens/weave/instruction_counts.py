"""What one instruction adds to the counts of its region."""

from __future__ import annotations

import re
from collections import defaultdict

from warplens.ptx.lane_accesses import ACCESSES
from warplens.ptx.lane_values import LaneValues
from warplens.ptx.tree import Instruction
from warplens.weave.access_bytes import Executed

Counts = dict[str, float]
_MATRIX = frozenset({"mma", "wgmma", "wmma", "tcgen05"})
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_WARPS_OF_GROUP = 4
_SLOWER = {"tf32": 2.0, "f64": 15.0, "e4m3": 0.5, "e5m2": 0.5, "s8": 0.5, "u8": 0.5}
"""How long a product of operands of this type takes beside one of 16-bit operands."""
_ATOMIC = frozenset({"atom", "red"})
COUNTED = frozenset({*ACCESSES, *_ATOMIC, *_MATRIX, "bar", "barrier", "cp", "mbarrier"})
"""Opcodes of instructions that are counted by what they do."""


def count(counts: defaultdict[str, float], one: Executed) -> None:
    """Add one instruction, as often as it runs."""
    node, access, trips = one.node, one.access, one.trips
    if access is not None:
        name = {"global": "loads" if access.is_load else "stores"}.get(access.space, access.space)
        counts[name] += trips * (one.active.share if name == "shared" else 1)
        if access.space == "global" and access.is_load:
            counts["load_bytes"] += access.width * trips
    elif node.opcode in _ATOMIC:
        counts["shared_atomics" if any(name.startswith("shared") for name in node.modifiers) else "atomics"] += trips
    elif node.opcode in ("bar", "barrier") and "warp" not in node.modifiers and "arrive" not in node.modifiers:
        counts["barriers"] += trips
    elif node.opcode in _MATRIX and {"sync", "mma_async", "mma"} & set(node.modifiers):
        counts["matrix"] += trips
        if flops := _matrix_flops(node):
            counts["matrix_flops"] += flops * trips
    elif node.opcode == "cp" and "async" in node.modifiers and not {"mbarrier", "commit_group"} & set(node.modifiers):
        counts["waits" if {"wait_group", "wait_all"} & set(node.modifiers) else "copies"] += trips


def bulk_bytes(one: Executed, values: LaneValues) -> float | None:
    """The bytes that a warp copies between global and shared memory by one instruction; None where they are not known.

    Bulk copies to shared memory are counted by what their mbarrier expects, which one thread says unless the code shows
    that more do.
    """
    node, modifiers = one.node, set(one.node.modifiers)
    if node.opcode == "mbarrier" and "expect_tx" in modifiers:
        size = _size(node.operands[-1], values)
        return size if size is None else size * (len(one.active.lanes) if one.active.known else 1)
    if node.opcode != "cp" or "async" not in modifiers:
        return 0
    if {"ca", "cg"} & modifiers:
        size = _size(node.operands[2], values) if len(node.operands) > 2 else None
        return size if size is None else size * len(one.active.lanes)
    if "bulk" in modifiers and _spaces(node) == ["global", "shared"]:
        if "tensor" in modifiers:
            return None
        size = _size(node.operands[2], values) if len(node.operands) > 2 else None
        return size if size is None else size * (len(one.active.lanes) if one.active.known else 1)
    return 0


def _spaces(node: Instruction) -> list[str]:
    """The memories that a copy names: its target, then its source."""
    names = (name.split("::")[0] for name in node.modifiers)
    return [name for name in names if name in ("global", "shared")]


def _size(operand: str, values: LaneValues) -> float | None:
    value = values.of(operand)
    return float(value.lanes[0]) if value.constant and value.lanes is not None else None


def _matrix_flops(node: Instruction) -> float:
    """The operations of a matrix product per warp that takes part, as if its operands had 16 bits; 0 if not known."""
    shape = next((found for name in node.modifiers if (found := _SHAPE.fullmatch(name))), None)
    if shape is None:
        return 0.0
    m, n, k = map(int, shape.groups())
    slower = next((_SLOWER[name] for name in node.modifiers if name in _SLOWER), 1.0)
    return 2 * m * n * k * slower / (_WARPS_OF_GROUP if node.opcode == "wgmma" else 1)
