"""The tree of nested regions of each kernel, with times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from warplens.analyse.lifetimes import Int, Lifetimes
from warplens.errors import UsageError
from warplens.trace.model import Trace


@dataclass(frozen=True)
class RegionNode:
    """A region within its parents. `cycles` and `exclusive` are sums over all warps, `normalized` is the cycles per
    warp of the kernel, and `share` is a share of the kernel's warp time."""

    name: str
    count: int
    cycles: int
    exclusive: int
    normalized: float
    share: float
    children: tuple[RegionNode, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, RegionNode]]:
        """This node and all below it with their depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "children"}
        return fields | {"children": [child.to_json() for child in self.children]}


def region_tree(trace: Trace) -> tuple[RegionNode, ...]:
    """Build one tree per kernel, children with the most cycles first. Open spans are counted but have no time."""
    lives = Lifetimes.of(trace)
    if not len(lives):
        return ()
    path, parents, names = _paths(lives)
    rows = np.flatnonzero(lives.is_span)
    timed = lives.measured[rows]
    size = len(names)
    count = np.bincount(path[rows], minlength=size)
    cycles = np.bincount(path[rows], weights=lives.duration[rows] * timed, minlength=size)
    exclusive = np.bincount(path[rows], weights=lives.exclusive[rows] * timed, minlength=size)
    kernels = trace.codes("kernel")[1]
    warps = np.bincount(lives.per_track("kernel"), minlength=len(kernels))
    alive = np.bincount(lives.per_track("kernel"), weights=lives.finish - lives.begin, minlength=len(kernels))
    below: dict[int, list[int]] = {}
    for number, parent in enumerate(parents):
        below.setdefault(parent, []).append(number)

    def node(number: int, kernel: int) -> RegionNode:
        inner = [node(child, kernel) for child in below.get(number, []) if count[child]]
        return RegionNode(
            names[number],
            count=int(count[number]),
            cycles=int(cycles[number]),
            exclusive=int(exclusive[number]),
            normalized=float(cycles[number] / max(warps[kernel], 1)),
            share=float(cycles[number] / max(alive[kernel], 1)),
            children=tuple(sorted(inner, key=lambda each: -each.cycles)),
        )

    roots = []
    for kernel, name in enumerate(kernels):
        if not warps[kernel]:
            continue
        inner = [node(at, kernel) for at in below.get(-1 - kernel, []) if count[at]]
        top = tuple(sorted(inner, key=lambda each: -each.cycles))
        lifetime = int(alive[kernel])
        inside = sum(each.cycles for each in top)
        launches = len(lives.kernels.get(name, ()))
        roots.append(
            RegionNode(name, launches, lifetime, max(lifetime - inside, 0), lifetime / warps[kernel], 1.0, top)
        )
    return tuple(sorted(roots, key=lambda each: -each.cycles))


def _paths(lives: Lifetimes) -> tuple[Int, list[int], list[str]]:
    """Each row's path, and each path's parent path (-1 - kernel code at the top level) and region name."""
    path = np.full(len(lives.start), -1, np.int64)
    parents: list[int] = []
    names: list[str] = []
    many = len(lives.regions)
    level = np.flatnonzero(lives.is_span & (lives.parent < 0))
    above = -1 - lives.per_track("kernel")[lives.of_row[level]]
    while len(level):
        key = (above - above.min()) * many + lives.region[level]
        _, at, index = np.unique(key, return_index=True, return_inverse=True)
        path[level] = len(names) + index.reshape(-1)
        names += [lives.regions[code] for code in lives.region[level][at].tolist()]
        parents += above[at].tolist()
        known = np.zeros(len(path), bool)
        known[level] = True
        level = np.flatnonzero(lives.is_span & (lives.parent >= 0) & known[lives.parent])
        above = path[lives.parent[level]]
    return path, parents, names


def prune_tree(
    roots: tuple[RegionNode, ...],
    *,
    include: str | None = None,
    exclude: str | None = None,
    depth: int | None = None,
    threshold: float = 0.0,
) -> tuple[RegionNode, ...]:
    """Prune a tree.

    `include` keeps nodes whose name matches, with their parents and everything below them. `exclude` drops nodes whose
    name matches, with everything below. `depth` limits the levels of regions. `threshold` drops nodes below that share.
    """
    keep, drop = _pattern(include, "include"), _pattern(exclude, "exclude")
    if depth is not None and depth < 0:
        raise UsageError(f"depth={depth}: must not be negative")
    if not 0 <= threshold <= 1:
        raise UsageError(f"threshold={threshold}: must be a share between 0 and 1")

    def cut(node: RegionNode, level: int, wanted: bool) -> RegionNode | None:
        if level and ((drop and drop.search(node.name)) or node.share < threshold):
            return None
        wanted = wanted or bool(level and keep and keep.search(node.name))
        inner = () if depth is not None and level >= depth else node.children
        remaining = tuple(each for child in inner if (each := cut(child, level + 1, wanted)))
        return replace(node, children=remaining) if wanted or remaining or level == 0 else None

    return tuple(cut(root, 0, keep is None) or replace(root, children=()) for root in roots)


def _pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(f"{option}={text!r} is not a regular expression ({error})") from None
