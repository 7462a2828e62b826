"""What one SM can hold, by compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.errors import UsageError


@dataclass(frozen=True)
class SmLimits:
    """The limits of one SM: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".

    Shared memory is in bytes; the system reserves `reserved` of it for each block. Registers are allocated per warp in
    units of `register_unit`, and warps in units of `warp_unit`.
    """

    warps: int
    blocks: int
    shared: int
    shared_block: int
    reserved: int
    shared_unit: int
    registers: int = 65536
    register_unit: int = 256
    warp_unit: int = 4


_K = 1024
SM_LIMITS = {
    "7.0": SmLimits(64, 32, 96 * _K, 96 * _K, 0, 256),
    "7.2": SmLimits(64, 32, 96 * _K, 96 * _K, 0, 256),
    "7.5": SmLimits(32, 16, 64 * _K, 64 * _K, 0, 256),
    "8.0": SmLimits(64, 32, 164 * _K, 163 * _K, _K, 128),
    "8.6": SmLimits(48, 16, 100 * _K, 99 * _K, _K, 128),
    "8.7": SmLimits(48, 16, 164 * _K, 163 * _K, _K, 128),
    "8.9": SmLimits(48, 24, 100 * _K, 99 * _K, _K, 128),
    "9.0": SmLimits(64, 32, 228 * _K, 227 * _K, _K, 128),
    "10.0": SmLimits(64, 32, 228 * _K, 227 * _K, _K, 128),
    "10.3": SmLimits(64, 32, 228 * _K, 227 * _K, _K, 128),
    "11.0": SmLimits(48, 24, 228 * _K, 227 * _K, _K, 128),
    "12.0": SmLimits(48, 24, 100 * _K, 99 * _K, _K, 128),
    "12.1": SmLimits(48, 24, 100 * _K, 99 * _K, _K, 128),
}


def find_limits(capability: str) -> SmLimits | None:
    """Return the limits of a compute capability, written 9.0, 90, sm_90 or sm_90a; None if it is not known."""
    digits = re.sub(r"^sm_?|[a-z]$", "", capability.strip().lower())
    return SM_LIMITS.get(digits if "." in digits else f"{digits[:-1]}.{digits[-1:]}")


def limits_of(capability: str) -> SmLimits:
    """Return the limits of a compute capability that must be known."""
    limits = find_limits(capability)
    if limits is None:
        raise UsageError(f"compute capability {capability!r} is not known (known: {', '.join(SM_LIMITS)})")
    return limits
