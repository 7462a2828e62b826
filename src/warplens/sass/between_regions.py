"""Which code between two regions each point of a program is part of (weave/code_between.py).

Such code has no marks of its own: it goes from the end of one region to the begin of the next. Like open_regions.py,
the same walk serves PTX, where it says which code that is, and SASS, where it says what was timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from warplens.ptx.dominators import predecessors
from warplens.sass.open_regions import CLOSE, OPEN, OpenRegion, RegionEdge, State, cross
from warplens.weave.code_between import OUTSIDE

START, EXIT = RegionEdge(CLOSE, OUTSIDE), RegionEdge(OPEN, OUTSIDE)
"""The clock reads at a warp's start and at its exit, as edges of the code between regions."""
Pairs = Mapping[tuple[str, str], str]
"""By the region before it and the one that follows: the region of the code between them."""


def between_regions(
    successors: Sequence[Sequence[int]],
    edges: Sequence[Sequence[RegionEdge]],
    entered: Sequence[State | None],
    places: Sequence[int],
    pairs: Pairs,
) -> list[State]:
    """The regions between others that each node is part of, each since the place of its beginning. A node with a mark
    is part of what leads to it. `entered` are the regions that are open at each node (`open_regions.follow`)."""
    outer = [
        _outermost(marks, state) if marks and state is not None else ()
        for marks, state in zip(edges, entered, strict=True)
    ]
    starts = [(edge[-1].region, place) for edge, place in zip(outer, places, strict=True) if edge and _closes(edge[-1])]
    ends = list(dict.fromkeys(edge[0].region for edge in outer if edge and not _closes(edge[0])))
    begun, numbers = {start: 1 << at for at, start in enumerate(starts)}, {end: 1 << at for at, end in enumerate(ends)}
    leaves = [
        (begun[edge[-1].region, place] if _closes(edge[-1]) else 0) if edge else None
        for edge, place in zip(outer, places, strict=True)
    ]
    enters = [(0 if _closes(edge[0]) else numbers[edge[0].region]) if edge else None for edge in outer]
    after = _spread(successors, leaves)
    before = _spread(predecessors(successors), enters)

    @cache
    def found(came: int, leads: int) -> State:
        since: dict[str, int] = {}
        for start, bit in begun.items():
            for end, other in numbers.items():
                name = pairs.get((start[0], end)) if came & bit and leads & other else None
                if name is not None:
                    since[name] = min(since.get(name, start[1]), start[1])
        return tuple(OpenRegion(name, place) for name, place in since.items())

    return [
        found(came, leads if own is None else own) if state == () else ()
        for came, leads, own, state in zip(after, before, enters, entered, strict=True)
    ]


def _outermost(marks: Sequence[RegionEdge], state: State) -> list[RegionEdge]:
    """Those of a node's marks before or behind which no region is open."""
    found = []
    for edge in marks:
        after = state if edge in (START, EXIT) else cross(state, [edge], 0)
        if not after or not state:
            found.append(edge)
        state = after
    return found


def _closes(edge: RegionEdge) -> bool:
    return edge.kind == CLOSE


def _spread(successors: Sequence[Sequence[int]], given: Sequence[int | None]) -> list[int]:
    """By node, the bits that reach it along the edges. A node that gives bits, or none, passes nothing else on."""
    reached = [0] * len(given)
    work = [node for node, bits in enumerate(given) if bits]
    while work:
        node = work.pop()
        own = given[node]
        bits = reached[node] if own is None else own
        for following in successors[node]:
            if bits & ~reached[following]:
                reached[following] |= bits
                if given[following] is None:
                    work.append(following)
    return reached
