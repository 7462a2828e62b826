"""Which kinds of findings name a cause of the truth set: the one place to adapt when the findings change."""

from __future__ import annotations

ACCEPTED: dict[str, tuple[str, ...]] = {
    "uncoalesced loads": ("uncoalesced access",),
    "bank conflicts": ("bank conflicts",),
    "too little in flight": ("too little in flight",),
    "too few blocks": ("too few blocks",),
    "tail of the last wave": ("last wave",),
    "imbalance between warps": ("warp imbalance",),
    "imbalance between blocks": ("block imbalance",),
    "serialised section": ("serialised section",),
    "producer too slow": ("slow producer",),
    "consumer too slow": ("slow consumer",),
    "register spills": ("register spills",),
    "low occupancy": ("low occupancy",),
    "atomics contention": ("atomics contention",),
    "unneeded barrier": ("unneeded barrier",),
    "launch ramp": ("launch ramp",),
    "compute bound": (),
    "memory bound": (),
}
HARMLESS = {"nothing to fix", "undecided"}
"""Kinds that promise nothing."""
SMALL = 0.05
"""The first finding about a kernel with nothing left to repair may promise this much at least and still be harmless."""
NO_PAIR = 0.08
"""A repair that gains less was none: its broken version has nothing to repair, either."""
