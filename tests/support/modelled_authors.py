"""The modelled kernels with the marks that authors choose for their own reasons, not to show a cause.

A launch is modelled once; each author then records other parts of what its warps did. What the weaver would count in
their regions follows from the counts of the regions that these are made of.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tests.support.modelled_gpu import (
    Arrive,
    Barrier,
    Device,
    Modelled,
    Move,
    Notes,
    Program,
    Ran,
    Shared,
    TrackNotes,
    Work,
)
from tests.support.modelled_kernels import Planted, loading, ring

_WORST = frozenset({"ways", "load_waste", "store_waste", "loops", "repeats", "unbounded", "load_levels"})
_COUNTED = frozenset(
    {"loads", "stores", "shared", "copies", "atomics", "shared_atomics", "barriers", "matrix", "local", "waits"}
)
_LOOPS = ("loop", "all", "main", "rows of mine")
_BODIES = ("step", "round", "part", "one")
_WAITS = frozenset({"sync", "meet", "wait empty", "wait full", "wait for tile", "enter", "free", "ready"})

Marks = Callable[[str, "Place"], str]
"""The path of regions for a region of the family, at a place; `""` leaves it unmarked."""


class Place:
    """Where a step of a warp is: in which role, round of its loop, and warp of its block. `inside` is False before and
    after the loop."""

    def __init__(self, role: int, warp: int, turn: int, inside: bool) -> None:
        self.role, self.warp, self.turn, self.inside = role, warp, turn, inside


def _role(kernel: Modelled, warp: int) -> int:
    return int(bool(kernel.stages) and warp == 1)


def _places(kernel: Modelled, track: TrackNotes) -> list[Place]:
    """The round of each step: one begins where the first region that comes again does."""
    runs = [at for at, one in enumerate(track.steps) if not at or track.steps[at - 1][0] != one[0]]
    often = Counter(track.steps[at][0] for at in runs)
    head = next((track.steps[at][0] for at in runs if often[track.steps[at][0]] > 1), track.steps[0][0])
    last = max((at for at, one in enumerate(track.steps) if often[one[0]] > 1), default=len(track.steps))
    turn, found, role = -1, [], _role(kernel, track.warp)
    for at, (region, _, _) in enumerate(track.steps):
        turn += region == head and (not at or track.steps[at - 1][0] != head)
        found.append(Place(role, track.warp, turn, turn >= 0 and at <= last))
    return found


def whole_loop(rng: random.Random, kernel: Modelled) -> Marks:
    """One region around the loop of each role."""
    names = rng.sample(_LOOPS, 2)
    return lambda region, at: names[at.role] if at.inside else region


def loop_body(rng: random.Random, kernel: Modelled) -> Marks:
    """A region around the body of the loop, which ends in each round."""
    names = rng.sample(_BODIES, 2)
    return lambda region, at: f"{names[at.role]}#{at.turn}" if at.inside else region


def no_waits(rng: random.Random, kernel: Modelled) -> Marks:
    """Only loads and work: what the author did not write as a step of the algorithm is not marked."""
    return lambda region, at: "" if region in _WAITS else region


def first_region(rng: random.Random, kernel: Modelled) -> Marks:
    """Only the producer, or only the first step of the loop."""
    first = next(iter(kernel.code))
    return lambda region, at: region if (at.role == 1 if kernel.stages else region == first) else ""


def consumers(rng: random.Random, kernel: Modelled) -> Marks:
    """The wait of the producer, and the work of the consumers."""
    shown = ("wait empty", "free", "math", "gelu") if kernel.stages else tuple(kernel.code)[1:2]
    return lambda region, at: region if region in shown else ""


def with_barrier(rng: random.Random, kernel: Modelled) -> Marks:
    """The region before a barrier or a wait goes on until it ends."""
    names = [one for one in kernel.code if one not in _WAITS]
    return lambda region, at: names[-1] if region in ("sync", "meet", "enter") else region


def nested(rng: random.Random, kernel: Modelled) -> Marks:
    """The steps inside a region for each round, whose own time are the waits."""
    names = rng.sample(("tile", "chunk", "round"), 2)

    def marks(region: str, at: Place) -> str:
        if not at.inside:
            return region
        outer = f"{names[at.role]}#{at.turn}"
        return outer if region in _WAITS else f"{outer}/{region}"

    return marks


def one_warp(rng: random.Random, kernel: Modelled) -> Marks:
    """One warp of each role."""
    return lambda region, at: region if at.warp == at.role else ""


def no_prologue(rng: random.Random, kernel: Modelled) -> Marks:
    """What the loop does, without what comes before its second round."""
    return lambda region, at: region if at.inside and at.turn > 0 else ""


AUTHORS = {
    one.__name__: one
    for one in (
        whole_loop, loop_body, no_waits, first_region, consumers, with_barrier, nested, one_warp, no_prologue,
    )
}  # fmt: skip


def marked_by(author: str, seed: str, kernel: Modelled, ran: Ran) -> tuple[Modelled, Ran]:
    """The kernel and its launch with the marks of an author."""
    marks = AUTHORS[author](random.Random(seed), kernel)
    tracks = []
    parts: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for track in ran.tracks:
        steps: Notes = []
        for (region, begin, end), place in zip(track.steps, _places(kernel, track), strict=True):
            path = marks(region, place)
            steps.append((path, begin, end))
            inner = path.split("/")[-1]
            # A loop without an instance for each of its rounds is inside the region.
            rounds = parts[inner.split("#")[0]]
            rounds[region] = rounds.get(region, False) or (place.turn > 0 and "#" not in path and inner != region)
        tracks.append(replace(track, steps=steps))
    code = {
        name: _together(kernel.code[region] | _looped(kernel.code[region], loop) for region, loop in found.items()
                        if region in kernel.code)
        for name, found in parts.items()
    }  # fmt: skip
    return replace(kernel, code=code), Ran(tracks, ran.took)


def _looped(counts: Mapping[str, float], loop: bool) -> dict[str, float]:
    if not loop:
        return {}
    accesses = any(counts.get(name) for name in _COUNTED)
    moves = any(counts.get(name) for name in ("moved_bytes", "block_bytes"))
    return {"unbounded": 1, **({"loops": 1} if accesses else {}), **({"repeats": 1} if moves else {})}


def _together(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in parts:
        for name, value in one.items():
            found[name] = max(found.get(name, 0), value) if name in _WORST else found.get(name, 0) + value
    known = sum(found.get(f"{need}_barriers", 0) for need in ("needed", "unneeded"))
    left = found.get("barriers", 0) - known
    return found | ({"unknown_barriers": left} if left > 0 else {})


def ring_by_one_lane(rng: random.Random, device: Device) -> Planted:
    """A ring whose regions have names that say nothing of their purpose; one lane starts a copy, and most instructions
    of its region work out where from."""
    consume, count, tile = rng.randint(1500, 3000), rng.randint(24, 40), 4096

    def made(consume: int) -> Modelled:
        code = {
            **{"free": {"instructions": 12.0, "waits": 1}, "ready": {"instructions": 12.0, "waits": 1}},
            "bring": {"instructions": 15.0, "copies": 1, "moved_bytes": tile},
            "gelu": {"instructions": 220.0, "shared": 2, "ways": 1, "loops": 1, "unbounded": 1},
        }
        return replace(ring(device, 4, tile, 15, consume, count, ("free", "bring", "ready", "gelu")), code=code)

    return Planted("slow consumer", made(consume), made(consume // 4), remains=("slow consumer",))


def rounds_in_one_region(rng: random.Random, device: Device) -> Planted:
    """Each round loads, converts and multiplies in one region, with exchanges between the warps; or the loads of the
    next round run ahead."""
    name, rounds = rng.choice(("step", "round", "tile")), rng.randint(24, 40)
    instructions, warps = rng.randint(150, 300), 4
    slots = 1 if device.bandwidth < 500 else rng.choice([1, 2])  # two blocks keep the memory of a T4 busy
    counts = {
        **loading(3, 12, shared=4, ways=1, barriers=2, needed_barriers=2),
        **{"instructions": float(instructions), "fetch_bytes": 1280.0},
    }

    def made(ahead: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                if ahead:
                    yield name, Arrive()
                yield name, Move(1280, waits=not ahead)
                yield name, Shared(4)
                yield name, Barrier()
                yield name, Work(instructions, 1)
                yield name, Barrier()
                yield "", Work(1)

        return Modelled(program, slots * device.sms, warps, slots, {name: counts})

    return Planted("too little in flight", made(False), made(True), remains=("too little in flight",))


AUTHOR_FAMILIES = {one.__name__: one for one in (ring_by_one_lane, rounds_in_one_region)}
