"""The tree of nested regions of each kernel variant, with times."""

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
        waiting = [(depth, self)]
        while waiting:
            level, node = waiting.pop()
            yield level, node
            waiting += [(level + 1, child) for child in reversed(node.children)]

    def to_json(self) -> dict[str, Any]:
        roots: list[dict[str, Any]] = []
        inside = [roots]
        for level, node in self.walk():
            fields = {name: getattr(node, name) for name in self.__dataclass_fields__ if name != "children"}
            children: list[dict[str, Any]] = []
            inside[level].append(fields | {"children": children})
            inside[level + 1 :] = [children]
        return roots[0]


def region_tree(trace: Trace) -> tuple[RegionNode, ...]:
    """Build one tree per kernel variant, children with most cycles first. Open spans are counted but have no time."""
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
    kernels = list(lives.variants)
    warps = np.bincount(lives.variant, minlength=len(kernels))
    alive = np.bincount(lives.variant, weights=lives.finish - lives.begin, minlength=len(kernels))
    alive = np.array([_lifetime(lives, name, float(seen)) for name, seen in zip(kernels, alive, strict=True)])
    kernel_of: list[int] = []
    for parent in parents:
        kernel_of.append(-1 - parent if parent < 0 else kernel_of[parent])
    below: dict[int, list[RegionNode]] = {}
    for number in range(size - 1, -1, -1):  # a path comes after its parent, so that children are made first
        if not count[number]:
            continue
        kernel = kernel_of[number]
        inner = _most_cycles_first(below.pop(number, []))
        node = RegionNode(
            names[number],
            count=int(count[number]),
            cycles=int(cycles[number]),
            exclusive=int(exclusive[number]),
            normalized=float(cycles[number] / max(warps[kernel], 1)),
            share=float(cycles[number] / max(alive[kernel], 1)),
            children=inner,
        )
        below.setdefault(parents[number], []).append(node)

    roots = []
    for kernel, name in enumerate(kernels):
        if not warps[kernel]:
            continue
        top = _most_cycles_first(below.get(-1 - kernel, []))
        lifetime = int(alive[kernel])
        inside = sum(each.cycles for each in top)
        launches = len(lives.variants[name])
        roots.append(
            RegionNode(name, launches, lifetime, max(lifetime - inside, 0), lifetime / warps[kernel], 1.0, top)
        )
    return tuple(sorted(roots, key=lambda each: -each.cycles))


def _lifetime(lives: Lifetimes, name: str, seen: float) -> float:
    """The lifetime of a variant's warps, which shares refer to as in statistics: from start to exit, where known."""
    infos = [lives.launches[at].info for at in lives.variants[name].tolist()]
    return float(sum(info.busy_cycles for info in infos if info)) or seen


def _most_cycles_first(made_last_to_first: list[RegionNode]) -> tuple[RegionNode, ...]:
    ordered = made_last_to_first[::-1]
    ordered.sort(key=lambda each: -each.cycles)
    return tuple(ordered)


def _paths(lives: Lifetimes) -> tuple[Int, list[int], list[str]]:
    """Each row's path, and each path's parent path (-1 - kernel code at the top level) and region name."""
    path = np.full(len(lives.start), -1, np.int64)
    parents: list[int] = []
    names: list[str] = []
    many = len(lives.regions)
    inner = np.flatnonzero(lives.is_span & (lives.parent >= 0))
    inner = inner[np.argsort(lives.parent[inner], kind="stable")]
    parent_of_inner = lives.parent[inner]
    level = np.flatnonzero(lives.is_span & (lives.parent < 0))
    above = -1 - lives.variant[lives.of_row[level]]
    while len(level):
        key = (above - above.min()) * many + lives.region[level]
        _, at, index = np.unique(key, return_index=True, return_inverse=True)
        path[level] = len(names) + index.reshape(-1)
        names += [lives.regions[code] for code in lives.region[level][at].tolist()]
        parents += above[at].tolist()
        first, last = (np.searchsorted(parent_of_inner, level, side=side) for side in ("left", "right"))
        children = last - first
        at = np.arange(int(children.sum())) + np.repeat(first - np.cumsum(children) + children, children)
        level = np.sort(inner[at])
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

    def cut(root: RegionNode) -> RegionNode:
        reached: list[tuple[RegionNode, int, bool]] = []
        above: list[int] = []
        waiting = [(root, 0, keep is None, -1)]
        while waiting:
            node, level, wanted, parent = waiting.pop()
            if level and ((drop and drop.search(node.name)) or node.share < threshold):
                continue
            wanted = wanted or bool(level and keep and keep.search(node.name))
            inner = () if depth is not None and level >= depth else node.children
            waiting += [(child, level + 1, wanted, len(reached)) for child in reversed(inner)]
            reached.append((node, level, wanted))
            above.append(parent)
        remaining: list[list[RegionNode]] = [[] for _ in reached]
        for number in range(len(reached) - 1, 0, -1):  # children come after their parent
            node, _, wanted = reached[number]
            if wanted or remaining[number]:
                remaining[above[number]].append(replace(node, children=tuple(reversed(remaining[number]))))
        return replace(root, children=tuple(reversed(remaining[0])))

    return tuple(map(cut, roots))


def _pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(f"{option}={text!r} is not a regular expression ({error})") from None
