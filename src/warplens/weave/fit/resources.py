"""What an assembled kernel takes of an SM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """`registers` per thread and `spills` in bytes; `serialized` says that ptxas gave up on overlapping wgmma
    instructions, `warnings` counts the lines it warned in, and `blocks` is how many blocks fit on an SM (0: unknown).
    """

    registers: int = 0
    spills: int = 0
    serialized: bool = False
    warnings: int = 0
    blocks: int = 0

    @staticmethod
    def from_driver(attributes: Mapping[str, int], blocks: int = 0) -> Resources:
        """Read the attributes of a loaded kernel; its local memory stands for spills."""
        return Resources(attributes["registers"], attributes["local_bytes"], blocks=blocks)

    @property
    def complaints(self) -> int:
        """How often ptxas warned of anything, serialized wgmma instructions included."""
        return self.warnings + self.serialized

    def describe(self) -> dict[str, int]:
        """Return what a launch keeps of it."""
        return {"registers": self.registers, "spills": self.spills, "serialized": int(self.serialized)}


UNUSABLE = Resources(registers=1 << 30, spills=1 << 30)
"""What a kernel counts as that could not be assembled: it takes more than any other."""
