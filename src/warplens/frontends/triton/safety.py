"""Whether marks harm a kernel: more spills, fewer blocks on an SM, wgmmas that no longer overlap."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warplens.frontends.triton.ptxas import Resources


@dataclass(frozen=True)
class Guard:
    """Compares a marked kernel with the plain one, which is compiled only where it could matter. `least` is the share
    of its blocks per SM that the kernel must keep."""

    compile_plain: Callable[[], Resources]
    threads: int
    shared: int
    capability: int
    least: float = 1.0

    @functools.cached_property
    def plain(self) -> Resources:
        return self.compile_plain()

    def problem(self, marked: Resources) -> str:
        """What marks cost the kernel that they must not, or nothing."""
        held = self.blocks(marked.registers)
        if not marked.spills and not marked.serialized and held >= self.blocks(0) * self.least:
            return ""
        if marked.spills > self.plain.spills:
            return f"with marks it would spill {marked.spills:,} bytes of registers, without {self.plain.spills:,}"
        if marked.serialized and not self.plain.serialized:
            return "with marks its wgmmas would no longer overlap"
        if held < self._needed:
            before = self.blocks(self.plain.registers)
            return (
                f"with marks it would need {marked.registers} registers instead of {self.plain.registers}, and {held} "
                f"instead of {before} blocks would fit an SM (least_occupancy={math.floor(100 * held / before) / 100} "
                "allows it)"
            )
        return ""

    @property
    def limit(self) -> int:
        """The most registers that leave enough blocks on an SM; 0 where any number does."""
        return next((r for r in (255, *range(248, 0, -8)) if self.blocks(r) >= self._needed), 0) % 255

    @property
    def _needed(self) -> float:
        return self.blocks(self.plain.registers) * self.least

    def blocks(self, registers: int) -> int:
        """Blocks that fit an SM; 0 where its limits are not known, and then nothing can be said."""
        from warplens.analyse.devices import LIMITS
        from warplens.analyse.occupancy import occupancy

        version = f"{self.capability // 10}.{self.capability % 10}"
        if version not in LIMITS or self.threads > 1024:
            return 0
        shared = min(self.shared, LIMITS[version].shared_block)
        return occupancy(self.threads, min(registers, 255), shared, version).blocks


def threads_of(ptx: str, metadata: dict[str, Any]) -> int:
    """Threads per block of a kernel that Triton compiled: more than it was asked for where warps are specialised."""
    found = re.search(r"\.reqntid\s+(\d+)", ptx)
    return int(found[1]) if found else 32 * int(metadata["num_warps"])
