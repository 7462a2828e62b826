"""Decide whether most of a region's main work is outside its marks, and say so in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WEIGHTS = {
    "tensor": 64.0, "copy": 16.0, "load.global": 16.0, "store.global": 16.0, "atomic": 16.0, "texture": 16.0,
    "load.generic": 16.0, "store.generic": 16.0, "load.tensor": 16.0, "store.tensor": 16.0,
    "load.shared": 4.0, "store.shared": 4.0, "load.local": 4.0, "store.local": 4.0, "barrier": 4.0,
    "special": 2.0, "fp64": 2.0, "fp32": 1.0, "fp16": 1.0, "convert": 1.0, "shuffle": 2.0,
    "integer": 0.125,
}  # fmt: skip
"""How much one instruction of a class counts. A region that loads a tile is about the load, however many addresses it
computes; moves, branches and constants are never what a region is about."""
WORDS = {
    "tensor": "tensor instruction", "copy": "asynchronous copy", "load.global": "global load",
    "store.global": "global store", "atomic": "atomic", "texture": "texture load", "load.generic": "load",
    "store.generic": "store", "load.tensor": "tensor memory load", "store.tensor": "tensor memory store",
    "load.shared": "shared load", "store.shared": "shared store", "load.local": "local load",
    "store.local": "local store", "barrier": "barrier", "special": "special function", "fp64": "fp64 instruction",
    "fp32": "fp32 instruction", "fp16": "fp16 instruction", "convert": "conversion", "shuffle": "shuffle",
    "integer": "integer instruction",
}  # fmt: skip
_PLURALS = {"asynchronous copy": "asynchronous copies"}
MOST = 0.5
"""A region of whose main work less than this share is between its marks is flagged."""

EMPTY = "no instruction of the kernel is between its marks"


def main_class(kept: Mapping[str, int], moved_out: Mapping[str, int]) -> str:
    """The class that a region is mainly about, by weight; empty if it has no work."""
    total = {kind: kept.get(kind, 0) + moved_out.get(kind, 0) for kind in WEIGHTS}
    weighed = {kind: count * WEIGHTS[kind] for kind, count in total.items() if count}
    return max(weighed, key=lambda kind: weighed[kind], default="")


def main_work_flag(
    kept: Mapping[str, int],
    moved_out: Mapping[str, int],
    moved_in: Mapping[str, int],
    sides: Mapping[tuple[str, str], int],
    copies: Sequence[Mapping[str, int]] = (),
) -> str:
    """Half a sentence if most of a region's main work is outside its marks, or nothing is between them; else empty.

    `sides` counts what was moved out by class and side. `copies` are the counts between the marks of each copy: if
    fewer than half of them hold any of the main work, most executions of the region did not time it.
    """
    kind = main_class(kept, moved_out)
    if not kind:
        return "" if sum(kept.values()) or sum(moved_in.values()) else EMPTY
    inside, outside = kept.get(kind, 0), moved_out.get(kind, 0)
    if inside >= MOST * (inside + outside):
        holding = sum(bool(copy.get(kind)) for copy in copies)
        if outside and holding < MOST * len(copies):
            return f"{len(copies) - holding} of its {len(copies)} copies have no {WORDS[kind]} between their marks"
        return ""
    before, after = (sides.get((kind, side), 0) for side in ("before", "after"))
    place = "before its begin" if before == outside else "after its end" if after == outside else "outside its marks"
    if inside + outside == 1:
        return f"its only {WORDS[kind]} is {place}"
    word = _PLURALS.get(WORDS[kind], WORDS[kind] + "s")
    return f"{outside if inside else 'all'} of its {inside + outside} {word} are {place}"
