"""How many blocks of a Triton kernel fit on an SM."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from warplens.driver.limits import SmLimits, find_limits
from warplens.driver.theoretical_occupancy import MAX_REGISTERS, MAX_THREADS, blocks_per_sm, registers_for_warps
from warplens.weave.fit.resources import Resources


@dataclass(frozen=True)
class BlockShape:
    """What the blocks of a kernel take besides registers; `limits` is None if those of the SM are not known."""

    threads: int
    shared: int
    limits: SmLimits | None

    @staticmethod
    def of(ptx: str, metadata: dict[str, Any], shared: int) -> BlockShape:
        """Read the shape of a kernel that Triton compiled, with `shared` bytes of shared memory per block."""
        # Kernels with specialised warps have more threads than the user asked for.
        found = re.search(r"\.reqntid\s+(\d+)", ptx)
        threads = int(found[1]) if found else 32 * int(metadata["num_warps"])
        limits = find_limits(str(metadata["target"].arch)) if threads <= MAX_THREADS else None
        return BlockShape(threads, shared, limits)

    def blocks(self, registers: int) -> int:
        """Return how many blocks fit on an SM; 0 if that is not known. 0 registers take no room."""
        if self.limits is None:
            return 0
        shared = min(self.shared, self.limits.shared_block)
        return blocks_per_sm(self.limits, self.threads, min(registers, MAX_REGISTERS), shared)

    def with_blocks(self, resources: Resources) -> Resources:
        """Return `resources` with the number of blocks that fit on an SM."""
        return replace(resources, blocks=self.blocks(resources.registers))

    def register_limit(self, blocks: float) -> int:
        """Return the most registers that leave at least `blocks` blocks on an SM; 0 if any number does."""
        if self.limits is None:
            return 0
        return registers_for_warps(self.limits, math.ceil(blocks) * -(-self.threads // 32)) % MAX_REGISTERS
