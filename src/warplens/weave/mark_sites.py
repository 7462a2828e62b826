"""Basic blocks of a function: the chain_blocks in which one bounds check and one pointer step serve all marks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from warplens.ptx.syntax import WeaveError
from warplens.ptx.tree import Comment, Directive, Function, Instruction, Label, Node, Scope
from warplens.weave.mark_comments import PREFIX, Mark, parse_mark

BRANCHES = frozenset({"bra", "brx", "ret", "exit", "call", "trap"})
BARRIERS = frozenset({"bar", "barrier"})
_LETS_GO = {"arrive", "warp"}
_LABEL = re.compile(r"[\w$]+")


@dataclass(frozen=True)
class NodePosition:
    """Where a node stands: the list that holds it, and the node itself (indices move while weaving)."""

    holder: list[Node]
    node: Node

    def before(self, new: Node) -> None:
        self.holder.insert(self._index(), new)

    def after(self, new: Node) -> None:
        self.holder.insert(self._index() + 1, new)

    def remove(self) -> None:
        del self.holder[self._index()]

    def _index(self) -> int:
        return next(i for i, node in enumerate(self.holder) if node is self.node)


@dataclass
class MarkSite:
    """A mark and where it stands. `fused` marks follow the one before with no instruction between them."""

    mark: Mark
    position: NodePosition
    location: str = ""
    fused: bool = False


@dataclass
class MarkBlock:
    """Marks that execute together. `end` is the instruction before which the block's last text may go."""

    sites: list[MarkSite]
    end: NodePosition
    order: int
    """Position of the block's first mark in the function, to find the loops around it."""
    in_loop: bool = False
    tail: int = 0
    """Instructions between the last mark and the block's end."""
    inside: list[Instruction] = field(default_factory=list)
    """Instructions after the first mark."""

    @property
    def slots(self) -> int:
        return sum(site.mark.slots for site in self.sites)

    def groups(self, fuse: bool) -> list[list[MarkSite]]:
        """The marks in groups that share a clock read, each mark for itself without `fuse`."""
        groups: list[list[MarkSite]] = []
        for site in self.sites:
            same_list = bool(groups) and groups[-1][0].position.holder is site.position.holder
            if groups and site.fused and same_list and fuse and site.mark.shares_clock:
                groups[-1].append(site)
            else:
                groups.append([site])
        return groups


@dataclass
class Outline:
    """What weaving needs to know about a function."""

    blocks: list[MarkBlock] = field(default_factory=list)
    exits: list[NodePosition] = field(default_factory=list)
    calls: list[NodePosition] = field(default_factory=list)
    barriers: list[NodePosition] = field(default_factory=list)
    """Where the function waits for other warps."""

    @property
    def sites(self) -> list[MarkSite]:
        return [site for block in self.blocks for site in block.sites]


def outline(function: Function, files: dict[str, str], most: int = sys.maxsize) -> Outline:
    """The blocks with marks, the exits and the calls of `function`; a block of more than `most` slots is cut."""
    targets = _branch_targets(function)
    result = Outline()
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    open_sites: list[MarkSite] = []
    inside: list[Instruction] = []
    first = since = 0
    location = ""

    def close(position: NodePosition) -> None:
        nonlocal open_sites, inside
        if open_sites:
            result.blocks.append(MarkBlock(open_sites, position, first, tail=since, inside=inside))
            open_sites, inside = [], []

    for order, (position, following) in enumerate(_positions(function.body or [])):
        node = position.node
        if isinstance(node, Label):
            labels[node.name] = order
            if node.name in targets:
                close(position)
        elif isinstance(node, Instruction):
            if node.opcode in BARRIERS and not _LETS_GO & set(node.modifiers):
                result.barriers.append(position)
            if node.opcode in BRANCHES:
                close(position)
                if node.opcode in ("ret", "exit"):
                    result.exits.append(position)
                elif node.opcode == "call":
                    result.calls.append(position)
                else:
                    jumps += [(order, word) for word in _LABEL.findall(node.arguments)]
            elif not is_placeholder(node, following):
                since += 1
                if open_sites:
                    inside.append(node)
        elif isinstance(node, Directive) and node.name == "loc":
            location = _location(node.arguments, files) or location
        elif isinstance(node, Comment):
            mark = parse_mark(node.content, node.line)
            if mark is not None:
                if sum(site.mark.slots for site in open_sites) + mark.slots > most:
                    close(position)
                if not open_sites:
                    first = order
                fused = bool(open_sites) and since == 0
                open_sites.append(MarkSite(mark, position, location, fused))
                since = 0
    if open_sites:
        raise WeaveError(open_sites[-1].mark.line, open_sites[-1].position.node.raw, "nothing follows this mark")
    for block in result.blocks:
        block.in_loop = any(labels.get(word, order) <= block.order <= order for order, word in jumps)
    return result


def _positions(body: list[Node]) -> Iterator[tuple[NodePosition, Node | None]]:
    """Every node with the one that follows it in the same list, in text order."""
    snapshot: list[Node | None] = [*body, None]
    for node, following in zip(body[:], snapshot[1:], strict=True):
        yield NodePosition(body, node), following
        if isinstance(node, Scope):
            yield from _positions(node.body)


def _branch_targets(function: Function) -> set[str]:
    found: set[str] = set()
    for node in function.walk():
        jump = isinstance(node, Instruction) and node.opcode in ("bra", "brx")
        table = isinstance(node, Directive) and node.name == "branchtargets"
        if isinstance(node, Instruction | Directive) and (jump or table):
            found.update(_LABEL.findall(node.arguments))
    return found


def is_placeholder(node: Instruction, following: Node | None) -> bool:
    """The dead `mov` that carries a mark through a front end that insists on a result."""
    return node.opcode == "mov" and isinstance(following, Comment) and following.content.startswith(PREFIX)


def _location(arguments: str, files: dict[str, str]) -> str:
    words = arguments.replace(",", " ").split()
    if len(words) < 2 or words[0] not in files:
        return ""
    return f"{files[words[0]]}:{words[1]}"
