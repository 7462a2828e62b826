"""The code between regions: which region can follow which, and the source lines of the code in between.

A warp that is in no region runs code between the end of one region and the begin of another, and both left a record. So
that code needs no marks of its own: its time is known where the weaver found which code it is. The decoder makes spans
of it (decode/work_spans.py).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import PurePath

from warplens.ptx.control_flow import BasicBlock, ControlFlow
from warplens.ptx.dominators import reached
from warplens.ptx.source_lines import SourceLines
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Directive, Function, Instruction
from warplens.record.layout import Kind
from warplens.weave.mark_sites import BRANCHES, MarkSite, is_placeholder
from warplens.weave.region_paths import region_paths
from warplens.weave.work_names import WORK, free_name

OUTSIDE = ""
"""Stands for the warp's start, as what comes before, and for its exit, as what follows."""
MOST_PAIRS = 1024
"""Of regions that can follow one another. A kernel with more, such as an interpreter whose many cases are all marked,
gets no regions between them."""
_JUMPS = BRANCHES - {"call"}
_Lines = Counter[tuple[str, int]]


@dataclass(frozen=True)
class CodeBetween:
    """The code from the end of the region `after` to the begin of the region `before`, in the lines of `file` that most
    of it belongs to; `file` is empty where no line is known."""

    after: str
    before: str
    file: str
    first: int
    last: int
    nodes: frozenset[int] = frozenset()
    """Its instructions, as places among the nodes of the function."""
    marked: frozenset[str] = frozenset()
    """The regions of the kernel that have marks."""

    @property
    def name(self) -> str:
        """The name of its region: `work attn.py:57-63`."""
        lines = f"{self.first}-{self.last}" if self.first < self.last else f"{self.first}"
        return free_name(f"{WORK} {PurePath(self.file).name}:{lines}" if self.file else WORK, self.marked)

    @property
    def location(self) -> str:
        return f"{self.file}:{self.first}" if self.file else ""


@dataclass
class _Stretch:
    """Code of one basic block without the begin or end of an outermost region. `after` and `before` are the regions
    whose marks delimit it; None at the edges of the block, from where it is connected to others."""

    after: str | None = None
    before: str | None = None
    lines: _Lines = field(default_factory=Counter)
    nodes: set[int] = field(default_factory=set)
    entering: list[int] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)


_known: OrderedDict[tuple[str, ...], tuple[CodeBetween, ...]] = OrderedDict()
"""A search weaves the same function several times."""
_MOST_KNOWN = 32


def number_regions(code: Sequence[CodeBetween], ids: dict[str, int], locations: dict[int, str]) -> list[list[int]]:
    """The regions of the code between others, as `Woven.between` has them; they are added to `ids` and `locations`."""
    found = []
    for one in code:
        number = ids.setdefault(one.name, len(ids) + 1)
        if one.location:
            locations.setdefault(number, one.location)
        found.append([ids.get(one.after, 0), ids.get(one.before, 0), number])
    return found


def code_between(function: Function, sites: Sequence[MarkSite], files: dict[str, str]) -> tuple[CodeBetween, ...]:
    """All code of a kernel that a warp can run between two regions; empty where the open regions depend on the path."""
    key = function.text(), *files.values()
    if key not in _known:
        _known[key] = tuple(_find(function, sites, SourceLines(files)))
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return _known[key]


def _find(function: Function, sites: Sequence[MarkSite], lines: SourceLines) -> list[CodeBetween]:
    flow = ControlFlow(function)
    try:
        outermost = outermost_sites(flow, sites)
    except PtxError:
        return []
    stretches = _stretches(flow, {id(site.position.node): site for site in outermost}, lines)
    starts, ends = ({name for one in stretches if (name := side(one)) is not None} for side in (_after, _before))
    follows = {name: _reached(stretches, _after, name, lambda one: one.leaving) for name in sorted(starts)}
    precedes = {name: _reached(stretches, _before, name, lambda one: one.entering) for name in sorted(ends)}
    reached = {after: {stretches[number].before for number in forward} for after, forward in follows.items()}
    pairs = [(after, before) for after in follows for before in precedes if before in reached[after]]
    found, marked = [], frozenset(site.mark.name for site in sites)
    for after, before in pairs if len(pairs) <= MOST_PAIRS else ():
        both = [stretches[number] for number in sorted(follows[after] & precedes[before])]
        if nodes := frozenset().union(*(one.nodes for one in both)):
            found.append(CodeBetween(after, before, *_place(both), nodes, marked))
    return found


def outermost_sites(flow: ControlFlow, sites: Sequence[MarkSite]) -> list[MarkSite]:
    """The marks of regions that are in no other."""
    paths = region_paths(flow, sites)
    return [site for site in sites if len(paths.get(id(site), ())) == 1]


def _after(one: _Stretch) -> str | None:
    return one.after


def _before(one: _Stretch) -> str | None:
    return one.before


def _stretches(flow: ControlFlow, outermost: dict[int, MarkSite], lines: SourceLines) -> list[_Stretch]:
    found: list[_Stretch] = []
    heads, tails = {}, {}
    location: tuple[str, int] | None = None
    at = -1
    for number, block in enumerate(flow.blocks):
        current = _Stretch(after=None if number else OUTSIDE)
        heads[number] = len(found)
        found.append(current)
        for node, following in zip_longest(block.nodes, block.nodes[1:]):
            at += 1
            site = outermost.get(id(node))
            if isinstance(node, Directive) and node.name == "loc":
                location = lines.of(node.arguments)
            elif isinstance(node, Instruction):
                if node.opcode in _JUMPS or is_placeholder(node, following):
                    continue  # a jump alone is not worth a span
                current.nodes.add(at)
                if location is not None:
                    current.lines[location] += 1
            elif site is not None and site.mark.kind is Kind.BEGIN:
                current.before = site.mark.name
                current = _Stretch()  # inside the region
            elif site is not None and site.mark.kind is Kind.END:
                current = _Stretch(after=site.mark.name)
                found.append(current)
        if current is found[-1] and current.before is None:
            tails[number] = len(found) - 1
    found[-1].before = OUTSIDE  # the last block is the function's end
    _connect(found, flow.blocks, heads, tails)
    return found


def _connect(found: list[_Stretch], blocks: Sequence[BasicBlock], heads: dict[int, int], tails: dict[int, int]) -> None:
    for number, tail in tails.items():
        for following in blocks[number].successors:
            found[tail].leaving.append(heads[following])
            found[heads[following]].entering.append(tail)


def _reached(
    stretches: Sequence[_Stretch],
    side: Callable[[_Stretch], str | None],
    name: str,
    steps: Callable[[_Stretch], list[int]],
) -> set[int]:
    """The stretches that can be reached from those with `name` at this side, without passing an outermost mark."""
    starts = (number for number, one in enumerate(stretches) if side(one) == name)
    return reached([steps(one) for one in stretches], starts)


def _place(stretches: Sequence[_Stretch]) -> tuple[str, int, int]:
    """The file that most of the code belongs to, and its first and last line there."""
    lines: _Lines = Counter()
    for one in stretches:
        lines.update(one.lines)
    files: Counter[str] = Counter()
    for (file, _), count in lines.items():
        files[file] += count
    if not files:
        return "", 0, 0
    file = files.most_common(1)[0][0]
    numbers = [line for (of, line) in lines if of == file]
    return file, min(numbers), max(numbers)
