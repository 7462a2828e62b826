"""Insertions and removals that are collected first and made together, so that any number of them takes linear time."""

from __future__ import annotations

from dataclasses import dataclass, field

from warplens.ptx.tree import Node


class Edits:
    """Changes to lists of nodes. Nothing changes before `apply`."""

    def __init__(self) -> None:
        self._holders: dict[int, list[Node]] = {}
        self._before: dict[int, list[Node]] = {}
        self._after: dict[int, list[Node]] = {}
        self._removed: set[int] = set()

    def before(self, holder: list[Node], node: Node, new: Node) -> None:
        """Insert `new` directly before `node`, behind what was inserted before it earlier."""
        self._holders[id(holder)] = holder
        self._before.setdefault(id(node), []).append(new)

    def after(self, holder: list[Node], node: Node, new: Node) -> None:
        """Insert `new` directly after `node`, in front of what was inserted after it earlier."""
        self._holders[id(holder)] = holder
        self._after.setdefault(id(node), []).append(new)

    def remove(self, holder: list[Node], node: Node) -> None:
        """Remove `node`; what was inserted before and after it stays."""
        self._holders[id(holder)] = holder
        self._removed.add(id(node))

    def apply(self) -> None:
        """Make all changes."""
        for holder in self._holders.values():
            changed: list[Node] = []
            for node in holder:
                key = id(node)
                if key in self._before:
                    changed += self._before[key]
                if key not in self._removed:
                    changed.append(node)
                if key in self._after:
                    changed += reversed(self._after[key])
            holder[:] = changed
        for collected in (self._holders, self._before, self._after, self._removed):
            collected.clear()


@dataclass(frozen=True)
class NodePosition:
    """The position of a node: the list that contains it, and where changes next to it are collected."""

    holder: list[Node]
    node: Node
    edits: Edits = field(default_factory=Edits)

    def before(self, new: Node) -> None:
        self.edits.before(self.holder, self.node, new)

    def after(self, new: Node) -> None:
        self.edits.after(self.holder, self.node, new)

    def remove(self) -> None:
        self.edits.remove(self.holder, self.node)
