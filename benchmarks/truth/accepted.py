"""Which kinds of findings name a cause of the truth set: the one place to adapt when the findings change."""

from __future__ import annotations

ACCEPTED: dict[str, tuple[str, ...]] = {
    "uncoalesced loads": ("throughput", "stalls"),
    "bank conflicts": ("throughput", "stalls"),
    "too little in flight": ("overlap", "waits"),
    "too few blocks": ("waves",),
    "tail of the last wave": ("waves",),
    "imbalance between warps": ("imbalance",),
    "imbalance between blocks": ("imbalance", "waves"),
    "serialised section": ("serialised",),
    "producer too slow": ("pipeline", "waits"),
    "consumer too slow": ("pipeline", "waits"),
    "register spills": ("spills",),
    "low occupancy": ("occupancy",),
    "atomics contention": ("contention",),
    "unneeded barrier": ("waits", "barrier"),
    "launch ramp": ("ramp",),
    "compute bound": ("compute",),
    "memory bound": ("memory",),
}
HARMLESS = {"clock"}
"""Kinds that promise nothing about the kernel itself."""
SMALL = 0.05
"""A first finding about a repaired kernel may promise this much at least and still be harmless."""
