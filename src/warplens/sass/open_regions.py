"""Which regions are open at each point of a program: marks followed along its control flow.

The same walk serves PTX, where it says what the author marked, and SASS, where it says what was timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OPEN, CLOSE = "open", "close"


@dataclass(frozen=True, slots=True)
class RegionEdge:
    """A mark that opens or closes a region."""

    kind: str
    region: str


@dataclass(frozen=True, slots=True, order=True)
class OpenRegion:
    """A region that is open, and the place where it was opened: a PTX line or an address."""

    region: str
    since: int


State = tuple[OpenRegion, ...]
"""The open regions, outermost first."""


def cross(state: State, edges: Sequence[RegionEdge], place: int) -> State:
    """The state after the marks at one place. An end closes the innermost region of its name."""
    for edge in edges:
        if edge.kind == OPEN:
            state = (*state, OpenRegion(edge.region, place))
        else:
            at = max((at for at, one in enumerate(state) if one.region == edge.region), default=None)
            state = state if at is None else (*state[:at], *state[at + 1 :])
    return state


def follow(
    successors: Sequence[Sequence[int]],
    edges: Sequence[Sequence[tuple[int, Sequence[RegionEdge]]]],
    start: State = (),
    calls: Mapping[int, int] | None = None,
) -> list[State | None]:
    """The state at the entry of each node, None if it cannot be reached. `edges` are a node's marks with their places.

    Where paths meet, only regions that are open on all of them stay open. `calls` are nodes that call a subroutine,
    with its first node, which their successors do not name: in a subroutine, the regions of all its calls are open.
    """
    entry: list[State | None] = [None] * len(successors)
    starts = {0: start} if entry else {}
    work = list(starts)
    while work:
        first = work.pop()
        body = _follow_body(successors, edges, first, starts[first])
        for node, state in body.items():
            entry[node] = state
            target = (calls or {}).get(node)
            joined = None if target is None else join(starts.get(target, ()), state)
            if target is not None and joined is not None and starts.get(target) != joined:
                starts[target] = joined
                work.append(target)
    return entry


def _follow_body(
    successors: Sequence[Sequence[int]],
    edges: Sequence[Sequence[tuple[int, Sequence[RegionEdge]]]],
    first: int,
    start: State,
) -> dict[int, State]:
    entry = {first: start}
    work = [first]
    while work:
        node = work.pop()
        state = entry[node]
        for place, marks in edges[node]:
            state = cross(state, marks, place)
        for after in successors[node]:
            known = entry.get(after)
            met = state if known is None else _meet(known, state)
            if met != known:
                entry[after] = met
                work.append(after)
    return entry


def join(one: State, other: State) -> State:
    """What is open on one of two ways into a subroutine."""
    known = {region.region for region in one}
    return (*one, *(region for region in other if region.region not in known))


def _meet(one: State, other: State) -> State:
    """What is open on both paths, in the order of the first. Copies of one begin count as the same region."""
    left: dict[str, list[int]] = {}
    for known in other:
        left.setdefault(known.region, []).append(known.since)
    kept = []
    for known in one:
        places = left.get(known.region)
        if places:
            kept.append(OpenRegion(known.region, min(known.since, places.pop(0))))
    return tuple(kept)
