"""When marks harm a kernel: more spills, wgmma instructions that no longer overlap, fewer blocks on an SM."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from warplens.weave.fit.resources import Resources

LIFE_SPILLS = 32
"""Bytes that a kernel may spill more for the lives of its warps: they are spilled around its start and its exit, which
costs less than a block that no longer fits on the SM."""


@dataclass(frozen=True)
class Harm:
    """What marks cost a kernel, in words. `rank` orders harms by how bad they are; a harm that is not `refused` may be
    accepted where no weaving avoids it."""

    words: str
    refused: bool = True
    rank: tuple[int, ...] = ()


@dataclass(frozen=True)
class Guard:
    """Compares a woven kernel with the plain one.

    `measure_plain` is called only where the answer depends on it: not for a kernel without spills of which an SM holds
    as many blocks as registers could ever allow (`most_blocks`, None if that is not known). `wanted` is the fraction
    of its blocks per SM that the kernel should keep, `required` the fraction below which the loss is refused.
    `free_spills` is how many more bytes may be spilled without harm. `bodies` is how often the woven kernel has the
    kernel's code: ptxas adds up what each of them spills, and a block runs one.
    """

    measure_plain: Callable[[], Resources]
    most_blocks: int | None = None
    wanted: float = 1.0
    required: float = 1.0
    free_spills: int = 0
    bodies: int = 1

    @functools.cached_property
    def plain(self) -> Resources:
        return self.measure_plain()

    @property
    def wanted_blocks(self) -> float:
        return self.plain.blocks * self.wanted

    def harm(self, woven: Resources) -> Harm | None:
        """Return what marks cost the kernel, None if it loses nothing."""
        clean = not woven.spills and not woven.serialized
        if clean and self.most_blocks is not None and woven.blocks >= self.most_blocks * self.wanted:
            return None
        rank = 1, woven.spills, woven.registers
        if (more := woven.spills - self.bodies * self.plain.spills) > self.free_spills:
            return Harm(f"with marks it spills {more:,} more bytes of registers", rank=rank)
        if woven.serialized and not self.plain.serialized:
            return Harm("with marks its wgmma instructions no longer overlap", rank=rank)
        if woven.blocks < self.wanted_blocks:
            return self._fewer_blocks(woven, rank)
        return None

    def _fewer_blocks(self, woven: Resources, rank: tuple[int, ...]) -> Harm:
        plain = self.plain
        words = (
            f"with marks it needs {woven.registers} registers instead of {plain.registers}, "
            f"and an SM holds {woven.blocks} of its blocks instead of {plain.blocks}"
        )
        if woven.blocks >= plain.blocks * self.required:
            return Harm(words, refused=False, rank=(0,))
        share = math.floor(100 * woven.blocks / plain.blocks) / 100
        return Harm(f"{words} (least_occupancy={share} allows it)", rank=rank)
