"""The marks of a function, grouped by basic block, with its exits, calls and barriers."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from warplens.ptx.edits import Edits, NodePosition
from warplens.ptx.labels import JUMPS, end_with_return
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Comment, Directive, Function, Instruction, Label, Node, PtxModule, Scope
from warplens.record.layout import Kind
from warplens.weave.mark_comments import Mark, is_mark, parse_mark

BRANCHES = frozenset({"bra", "brx", "ret", "exit", "call", "trap"})
BARRIERS = frozenset({"bar", "barrier"})
_NON_BLOCKING = {"arrive", "warp"}
_LABEL = re.compile(r"[\w$]+")


@dataclass
class MarkSite:
    """A mark and its position. A `fused` mark follows the previous one without an instruction in between."""

    mark: Mark
    position: NodePosition
    location: str = ""
    fused: bool = False
    after_barrier: bool = False
    """Whether the warp waits at a block barrier between the mark before it and this one."""


def is_loose(before: MarkSite, site: MarkSite) -> bool:
    """Whether a barrier mark follows the begin of its own region, perhaps with code in between, such as that of its
    address."""
    mark = site.mark
    own = before.mark.kind is Kind.BEGIN and before.mark.name == mark.name and not before.mark.wide
    return mark.barrier is not None and own and not site.after_barrier


@dataclass
class MarkBlock:
    """The marks of one basic block, which share one bounds check and one pointer step.

    Code at the end of the block is inserted before `end`.
    """

    sites: list[MarkSite]
    end: NodePosition
    order: int
    """The index of the first mark among the function's nodes, used to find the enclosing loops."""
    in_loop: bool = False
    tail: int = 0
    """The number of instructions between the last mark and the end of the block."""
    inside: list[Instruction] = field(default_factory=list)
    """The instructions after the first mark."""

    @property
    def slots(self) -> int:
        return sum(site.mark.slots for site in self.sites)

    def groups(self, fuse: bool, *, loose: bool = False) -> list[list[MarkSite]]:
        """The marks in groups that share a clock read; without `fuse`, every mark is its own group.

        With `loose`, a barrier mark also shares the clock of its region's begin if that is the mark before it.
        """
        groups: list[list[MarkSite]] = []
        before: MarkSite | None = None
        stale = False
        for site in self.sites:
            joins = False
            if before is not None and fuse:
                same_list = groups[-1][0].position.holder is site.position.holder
                joins = site.fused and same_list and site.mark.shares_clock and not stale
                if loose and is_loose(before, site):
                    joins, stale = True, not joins
            if joins:
                groups[-1].append(site)
            else:
                groups.append([site])
                stale = False
            before = site
        return groups


@dataclass
class Outline:
    """The marked blocks, exits, calls and barriers of a function."""

    blocks: list[MarkBlock] = field(default_factory=list)
    exits: list[NodePosition] = field(default_factory=list)
    calls: list[NodePosition] = field(default_factory=list)
    barriers: list[NodePosition] = field(default_factory=list)
    """Instructions at which the warp waits for other warps."""
    edits: Edits = field(default_factory=Edits)
    """Collects the changes to the function."""

    @property
    def sites(self) -> list[MarkSite]:
        return [site for block in self.blocks for site in block.sites]


def kernels_with_marks(
    module: PtxModule, problem: str, hint: str = "", others: Collection[str] = ()
) -> Iterator[tuple[Function, Outline]]:
    """The kernels with marks and those named in `others`, which end with a return from then on. Marks in a function
    that is not inlined are a `problem`."""
    files = module.files
    for function in module.functions:
        if function.body is None:
            continue
        end_with_return(function)
        sketch = outline(function, files)
        if not sketch.sites and function.name not in others:
            continue
        if not function.is_entry:
            raise PtxError(function.line, function.header, problem, hint, function.name)
        yield function, sketch


def number_marks(sites: Iterable[MarkSite], numbers: dict[str, int], locations: dict[int, str]) -> None:
    """Add the regions of marks to `numbers`, and their source locations to `locations`."""
    for site in sites:
        if site.mark.kind is not Kind.ANCHOR:
            number = numbers.setdefault(site.mark.name, len(numbers) + 1)
            if site.location:
                locations.setdefault(number, site.location)


def outline(function: Function, files: dict[str, str], max_slots: int = sys.maxsize) -> Outline:
    """Outline `function`. A block with more than `max_slots` slots is split."""
    targets = _branch_targets(function)
    result = Outline()
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    open_sites: list[MarkSite] = []
    inside: list[Instruction] = []
    first = since = used = 0
    location, blocked = "", False

    def close(position: NodePosition) -> None:
        nonlocal open_sites, inside, used
        if open_sites:
            result.blocks.append(MarkBlock(open_sites, position, first, tail=since, inside=inside))
            open_sites, inside, used = [], [], 0

    for order, (holder, node, following) in enumerate(_in_order(function.body or [])):
        if isinstance(node, Instruction):
            if node.opcode in BARRIERS and not _NON_BLOCKING & set(node.modifiers):
                result.barriers.append(NodePosition(holder, node, result.edits))
                blocked = True
            if node.opcode in BRANCHES:
                position = NodePosition(holder, node, result.edits)
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
        elif isinstance(node, Label):
            labels[node.name] = order
            if node.name in targets:
                close(NodePosition(holder, node, result.edits))
        elif isinstance(node, Directive):
            if node.name == "loc":
                location = _location(node.arguments, files) or location
        elif isinstance(node, Comment):
            mark = parse_mark(node.content, node.line)
            if mark is not None:
                position = NodePosition(holder, node, result.edits)
                if used + mark.slots > max_slots:
                    close(position)
                if not open_sites:
                    first = order
                fused = bool(open_sites) and since == 0
                open_sites.append(MarkSite(mark, position, location, fused, blocked))
                blocked = False
                used += mark.slots
                since = 0
    if open_sites:
        raise PtxError(open_sites[-1].mark.line, open_sites[-1].position.node.raw, "no instruction follows this mark")
    backward = sorted((labels[word], order) for order, word in jumps if labels.get(word, order) < order)
    reach = at = 0
    for block in result.blocks:  # in text order: `reach` is the last jump back over the current block
        while at < len(backward) and backward[at][0] <= block.order:
            reach = max(reach, backward[at][1])
            at += 1
        block.in_loop = block.order <= reach
    return result


def _in_order(body: list[Node]) -> Iterator[tuple[list[Node], Node, Node | None]]:
    """Every node with the list that contains it and its successor there, in text order."""
    for node, following in itertools.zip_longest(body, body[1:]):
        yield body, node, following
        if isinstance(node, Scope):
            yield from _in_order(node.body)


def _branch_targets(function: Function) -> set[str]:
    found: set[str] = set()
    for node in function.walk():
        if isinstance(node, Instruction):
            if node.opcode in JUMPS:
                found.update(_LABEL.findall(node.arguments))
        elif isinstance(node, Directive) and node.name == "branchtargets":
            found.update(_LABEL.findall(node.arguments))
    return found


def is_placeholder(node: Instruction, following: Node | None) -> bool:
    """Whether it is the dead `mov` of a mark, needed where inline asm must have a result."""
    return node.opcode == "mov" and is_mark(following)


def _location(arguments: str, files: dict[str, str]) -> str:
    words = arguments.replace(",", " ").split()
    if len(words) < 2 or words[0] not in files:
        return ""
    return f"{files[words[0]]}:{words[1]}"
