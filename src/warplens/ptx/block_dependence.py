"""Whether blocks access different addresses: which parts of the block's index an operand depends on."""

from __future__ import annotations

import re

from warplens.ptx.operands import RegisterWriters, names
from warplens.ptx.tree import Instruction

AXES = "xyz"
_INDEX = re.compile(r"%ctaid\.([xyz])")
_ANY_AXIS = re.compile(r"%(?:clusterid|cluster_ctaid|cluster_ctarank|smid|gridid)")
_TAKEN = frozenset({"atom", "call", "clusterlaunchcontrol"})
"""Their results differ from block to block."""


class BlockDependence:
    """The axes of the block's index that the values of a function depend on."""

    def __init__(self, writers: RegisterWriters) -> None:
        self._writers = writers
        self._known: dict[str, str] = {}
        used = {axis for one in writers.instructions for axis in _axes(one)}
        self.every = "".join(axis for axis in AXES if axis in used)
        """The axes that the kernel uses at all."""

    def axes(self, operand: str) -> str:
        """Some of `xyz`: blocks whose indices differ in none of these have the same value."""
        if operand not in self._known:
            self._known[operand] = self._find(operand)
        return self._known[operand]

    def _find(self, operand: str) -> str:
        found = set(_INDEX.findall(operand))
        seen: set[str] = set()
        work = list(names(operand))
        while work and len(found) < len(self.every):
            name = work.pop()
            if name in seen:
                continue
            seen.add(name)
            for one in self._writers.of(name):
                if one.opcode in _TAKEN or _ANY_AXIS.search(one.arguments):
                    return self.every
                found.update(_axes(one))
                work += names(one.arguments)
        return "".join(axis for axis in AXES if axis in found)


def _axes(instruction: Instruction) -> list[str]:
    return _INDEX.findall(instruction.arguments) if "%ctaid" in instruction.arguments else []
