"""Theoretical occupancy: how many blocks of a kernel fit on an SM, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warplens.driver.limits import SmLimits, limits_of
from warplens.errors import UsageError

MAX_THREADS, MAX_REGISTERS = 1024, 255
"""Threads of a block and registers of a thread."""


@dataclass(frozen=True)
class Occupancy:
    """`blocks` per SM and how many each resource would allow; `limiters` are the resources that allow the fewest;
    `lift` says what would let one more block fit."""

    blocks: int
    warps: int
    share: float
    allowed: Mapping[str, int]
    limiters: tuple[str, ...]
    lift: str


def occupancy(threads: int, registers: int = 0, shared: int = 0, capability: str = "9.0") -> Occupancy:
    """Theoretical occupancy of blocks of `threads`, with registers per thread and bytes of shared memory per block."""
    limits = limits_of(capability)
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads={threads}: a block has 1 to {MAX_THREADS}")
    if not 0 <= registers <= MAX_REGISTERS:
        raise UsageError(f"registers={registers}: a thread has 0 (unknown) to {MAX_REGISTERS}")
    if not 0 <= shared <= limits.shared_block:
        raise UsageError(f"shared={shared}: a block of capability {capability} has at most {limits.shared_block} bytes")
    warps = -(-threads // 32)
    allowed = blocks_by_resource(limits, warps, registers, shared)
    blocks = min(allowed.values())
    limiters = tuple(name for name, count in allowed.items() if count == blocks)
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        share=blocks * warps / limits.warps,
        allowed=allowed,
        limiters=limiters,
        lift=_lift(limits, blocks, warps, registers, shared, limiters),
    )


def blocks_by_resource(limits: SmLimits, warps: int, registers: int = 0, shared: int = 0) -> dict[str, int]:
    """Return how many blocks of `warps` warps each resource of an SM allows; 0 registers are unknown."""
    allowed = {"warps": limits.warps // warps, "blocks": limits.blocks}
    if registers:
        allowed["registers"] = _warps_by_registers(limits, registers) // warps
    if shared or limits.reserved:
        unit = limits.shared_unit
        allowed["shared memory"] = limits.shared // max(-(-(shared + limits.reserved) // unit) * unit, 1)
    return allowed


def blocks_per_sm(limits: SmLimits, threads: int, registers: int = 0, shared: int = 0) -> int:
    """Return how many blocks fit on an SM."""
    return min(blocks_by_resource(limits, -(-threads // 32), registers, shared).values())


def shared_for_blocks(limits: SmLimits, blocks: int) -> int:
    """Return the most bytes of shared memory with which `blocks` blocks fit on an SM."""
    return max(limits.shared // blocks // limits.shared_unit * limits.shared_unit - limits.reserved, 0)


def registers_for_warps(limits: SmLimits, warps: int) -> int:
    """Return the most registers per thread with which `warps` warps fit on an SM; 0 if they never do."""
    steps = (MAX_REGISTERS, *range(MAX_REGISTERS // 8 * 8, 0, -8))
    return next((count for count in steps if _warps_by_registers(limits, count) >= warps), 0)


def _warps_by_registers(limits: SmLimits, registers: int) -> int:
    per_warp = -(-registers * 32 // limits.register_unit) * limits.register_unit
    return limits.registers // per_warp // limits.warp_unit * limits.warp_unit


def _lift(limits: SmLimits, blocks: int, warps: int, registers: int, shared: int, limiters: tuple[str, ...]) -> str:
    """Say what it takes to fit more blocks, and how many then fit: resources are allocated in steps."""
    if blocks * warps >= limits.warps:
        return "nothing: blocks that fill every warp slot fit already"
    want = blocks + 1
    if want * warps > limits.warps:
        return f"smaller blocks: {want} of {warps} warps do not fit in {limits.warps} warp slots"
    if "blocks" in limiters:
        return f"larger blocks: an SM holds at most {limits.blocks}"
    steps = []
    if "registers" in limiters:
        fits = [r for r in range(registers - 1, 0, -1) if _warps_by_registers(limits, r) >= want * warps]
        if not fits:
            return "fewer warps per block"
        steps.append(f"at most {fits[0]} registers per thread (now {registers})")
        registers = fits[0]
    if "shared memory" in limiters:
        shared = shared_for_blocks(limits, want)
        steps.append(f"at most {shared:,} bytes of shared memory per block")
    fit = min(blocks_by_resource(limits, warps, registers, shared).values())
    return " and ".join(steps) + f" would fit {fit} blocks"
