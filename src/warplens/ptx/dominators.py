"""Dominators of a directed graph, by the algorithm of Lengauer and Tarjan: time grows as edges times log(nodes)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

Graph = Sequence[Sequence[int]]
"""The successors of each node, by number."""


class DominatorTree:
    """Which nodes lie on every path from `root` to a node. Nodes that `root` does not reach are dominated by none."""

    def __init__(self, successors: Graph, root: int) -> None:
        self.order, found_from = _depth_first(successors, root)
        """The nodes that the root reaches, each after its immediate dominator."""
        self.parent = _immediate(successors, self.order, found_from)
        """The immediate dominator of each node; -1 for the root and for nodes that it does not reach."""
        self._first, self._last = _intervals(self.parent, self.order)

    def strictly_dominates(self, above: int, below: int) -> bool:
        """Whether every path from the root to `below`, another node, leads through `above`."""
        return above != below and self._first[above] <= self._first[below] <= self._last[above]

    def nearest(self, wanted: Container[int]) -> list[int]:
        """For each node, the nearest of the `wanted` ones that dominate it strictly; -1 if there is none."""
        found = [-1] * len(self.parent)
        for node in self.order:
            above = self.parent[node]
            if above >= 0:
                found[node] = above if above in wanted else found[above]
        return found


def predecessors(successors: Graph) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in successors]
    for number, following in enumerate(successors):
        for after in following:
            found[after].append(number)
    return found


def reached(successors: Graph, starts: Iterable[int], avoiding: Collection[int] = ()) -> set[int]:
    """The nodes on paths from `starts`, these included, that enter no node of `avoiding`."""
    seen = set(starts).difference(avoiding)
    work = list(seen)
    for node in work:
        for after in successors[node]:
            if after not in seen and after not in avoiding:
                seen.add(after)
                work.append(after)
    return seen


def loop_bodies(
    tree: DominatorTree, successors: Graph, predecessors: Graph, order: Iterable[int]
) -> dict[int, tuple[list[int], set[int]]]:
    """The natural loops among the nodes of `order`, by header, which dominates the whole loop: the nodes that jump back
    to it, and all nodes."""
    latches: dict[int, list[int]] = {}
    for node in order:
        for header in successors[node]:
            if header == node or tree.strictly_dominates(header, node):
                latches.setdefault(header, []).append(node)
    return {
        header: (ends, {header, *reached(predecessors, ends, avoiding=(header,))}) for header, ends in latches.items()
    }


def on_cycles(successors: Graph) -> set[int]:
    """The nodes that can reach themselves (Tarjan's strongly connected components)."""
    found: set[int] = set()
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for start in range(len(successors)):
        if start in index:
            continue
        work = [(start, iter(successors[start]))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while work:
            number, following = work[-1]
            after = next(following, None)
            if after is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == index[number]:
                    at = len(path)
                    while path[at - 1] != number:
                        at -= 1
                    component = path[at - 1 :]
                    del path[at - 1 :]
                    on_path.difference_update(component)
                    if len(component) > 1 or number in successors[number]:
                        found.update(component)
            elif after not in index:
                index[after] = low[after] = len(index)
                path.append(after)
                on_path.add(after)
                work.append((after, iter(successors[after])))
            elif after in on_path:
                low[number] = min(low[number], index[after])
    return found


def _depth_first(successors: Graph, root: int) -> tuple[list[int], list[int]]:
    """The reachable nodes in preorder, and each node's parent in that search."""
    order, parent, seen = [root], [-1] * len(successors), {root}
    work = [(root, iter(successors[root]))]
    while work:
        number, following = work[-1]
        after = next(following, None)
        if after is None:
            work.pop()
        elif after not in seen:
            seen.add(after)
            order.append(after)
            parent[after] = number
            work.append((after, iter(successors[after])))
    return order, parent


def _immediate(successors: Graph, order: list[int], parent: list[int]) -> list[int]:
    size = len(successors)
    semi, label, ancestor, above = [-1] * size, list(range(size)), [-1] * size, [-1] * size
    waiting: list[list[int]] = [[] for _ in range(size)]
    for number, node in enumerate(order):
        semi[node] = number
    entering = predecessors(successors)

    def best(node: int) -> int:
        """The node with the least semidominator on the path from `node` to the root of its tree, which is shortened."""
        path, at = [], node
        while ancestor[at] >= 0 and ancestor[ancestor[at]] >= 0:
            path.append(at)
            at = ancestor[at]
        for one in reversed(path):
            up = ancestor[one]
            if semi[label[up]] < semi[label[one]]:
                label[one] = label[up]
            ancestor[one] = ancestor[up]
        return label[node]

    for node in reversed(order[1:]):
        for before in entering[node]:
            if semi[before] >= 0:
                semi[node] = min(semi[node], semi[best(before)])
        waiting[order[semi[node]]].append(node)
        over = ancestor[node] = parent[node]
        for other in waiting[over]:
            least = best(other)
            above[other] = least if semi[least] < semi[other] else over
        waiting[over] = []
    for node in order[1:]:
        if above[node] != order[semi[node]]:
            above[node] = above[above[node]]
    return above


def _intervals(parent: list[int], order: list[int]) -> tuple[list[int], list[int]]:
    """Number the tree so that a node's subtree is an interval; nodes outside the tree have empty intervals."""
    first, last = [-1] * len(parent), [-2] * len(parent)
    size = [0] * len(parent)
    # A node's immediate dominator precedes it in preorder, so its subtree is complete before it is added to its parent.
    for node in reversed(order):
        size[node] += 1
        if parent[node] >= 0:
            size[parent[node]] += size[node]
    next_free = [0] * len(parent)
    for node in order:
        above = parent[node]
        first[node] = next_free[above] if above >= 0 else 0
        if above >= 0:
            next_free[above] += size[node]
        next_free[node] = first[node] + 1
        last[node] = first[node] + size[node] - 1
    return first, last
