"""Which regions an instruction of PTX belongs to by its line in the source, if the compiler moved it before ptxas did.

A region whose begin and end are on different lines of one file owns the lines between them. Regions within one line,
such as those of automatic marks, own none: several operations may share that line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from warplens.ptx.labels import TERMINATORS
from warplens.ptx.tree import Comment, Directive, Function, Instruction, Node

Place = tuple[str, int]
"""A file and a line."""
Loc = tuple[str, ...]
"""The file's number, line and column of a `.loc`."""
_LOC = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?", re.S)
_INLINED = re.compile(r"@\[ (\S+?):(\d+):\d+")
_LONGEST = 2000
"""Lines that a region may span; more means that two marks were paired wrongly."""


def source_places(function: Function, files: Mapping[str, str]) -> dict[int, list[Place]]:
    """By `id` of a node: where it is in the source, then the places that it was inlined at, innermost first."""
    found: dict[int, list[Place]] = {}
    parents: dict[Loc, Loc] = {}
    chains: dict[str, list[Place]] = {}
    chain: list[Place] = []
    for node in function.walk():
        if isinstance(node, Directive):
            if node.name == "loc" and (match := _LOC.match(node.arguments)):
                place, outer = match.group(1, 2, 3), match.group(4, 5, 6)
                # The places between are only named when a call is first inlined; its name tells it from other calls.
                if node.arguments not in chains:
                    if outer[0]:
                        parents[place] = outer
                    chains[node.arguments] = _chain(place, parents if outer[0] else {}, files)
                chain = chains[node.arguments]
        elif isinstance(node, Comment) and node.trailing and "@[" in node.content and chain:
            # Triton up to 3.7 says only in a comment where a function was inlined.
            chain = [chain[0], *_inlined(node.content, files)]
        elif chain:
            found[id(node)] = chain
    return found


def _inlined(comment: str, files: Mapping[str, str]) -> list[Place]:
    named = {os.path.basename(path): path for path in files.values()}
    return [(named.get(name, name), int(line)) for name, line in _INLINED.findall(comment)]


def _chain(place: Loc, parents: Mapping[Loc, Loc], files: Mapping[str, str]) -> list[Place]:
    seen: list[Loc] = []
    step: Loc | None = place
    while step is not None and step not in seen:
        seen.append(step)
        step = parents.get(step)
    return [(files.get(file, file), int(line)) for file, line, _ in seen if int(line)]


def lines_of_regions(
    marks: Iterable[tuple[Node, str, bool]], places: Mapping[int, list[Place]]
) -> dict[Place, set[str]]:
    """The regions that own each line. `marks` are nodes with a region and whether it is a begin, in text order."""
    owned: dict[Place, set[str]] = {}
    begun: dict[str, list[Place]] = {}
    for node, region, begins in marks:
        chain = [one for one in places.get(id(node), ()) if not _is_header(one[0])]
        if begins:
            begun[region] = chain
            continue
        # Marks in a helper share the helper's lines; they differ where it was called.
        pairs = zip(begun.pop(region, ()), chain, strict=False)
        start, end = next(((one, other) for one, other in pairs if one != other), (("", 0), ("", 0)))
        if start[0] == end[0] and 0 < end[1] - start[1] <= _LONGEST:
            for line in range(start[1] + 1, end[1] + 1):
                owned.setdefault((end[0], line), set()).add(region)
    return owned


def regions_by_source(
    instructions: Iterable[Instruction], places: Mapping[int, list[Place]], owned: Mapping[Place, set[str]]
) -> dict[int, set[str]]:
    """By line of the PTX: the regions that own a place of its instruction."""
    found: dict[int, set[str]] = {}
    for node in instructions:
        if node.opcode in TERMINATORS:  # returns and jumps have the line of what they follow
            continue
        for place in places.get(id(node), ()):
            if place in owned:
                found.setdefault(node.line, set()).update(owned[place])
    return found


def _is_header(path: str) -> bool:
    return os.path.basename(path).startswith("warplens") or os.path.basename(path) == "sm_profiler.h"
