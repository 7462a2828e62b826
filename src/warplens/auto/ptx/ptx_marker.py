"""mark_ptx(): insert the marks that `Auto` requests into PTX as comments, for `weave` to expand."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from warplens.auto.ptx.barrier_marks import mark_function
from warplens.auto.ptx.branch_regions import branch_regions
from warplens.auto.ptx.coarse_regions import coarse_regions, whole_loops
from warplens.auto.ptx.edge_splits import split_polling_edges
from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.line_regions import line_ranges, worked_lines
from warplens.auto.ptx.loop_regions import Loop, iterations, natural_loops, spins
from warplens.auto.ptx.operation_regions import Operations
from warplens.auto.ptx.units import FunctionUnits, Unit
from warplens.auto.ptx.value_arrival import arrived
from warplens.auto.rules import Auto, RegionSite, region_name
from warplens.ptx.edits import Edits
from warplens.ptx.garbage_pause import garbage_pause
from warplens.ptx.labels import end_with_return
from warplens.ptx.symbols import plain_name
from warplens.ptx.tree import Node, Raw, parse
from warplens.weave.mark_comments import PREFIX, encode_name

MARKED = "// @marked\n"
"""The first line of marked text, which prevents marking it twice."""

_PRIORITY = {"body": 0, "ranges": 0, "loops": 1, "lines": 3}
"""Which regions to keep first when there are more than `Auto.most`; operations have priority 2."""

_CLOSES, _OPENS = 1, 2
_GapPart = tuple[tuple[int, ...], str, tuple[tuple[str, str], ...]]
"""What is inserted in a gap: a sort key, the text, and the letter and encoded name of each begin and end in it."""


@dataclass(frozen=True)
class Marked:
    """Marked PTX, with the sites of each kernel and how many sites exceeded `Auto.most`."""

    text: str
    sites: dict[str, tuple[RegionSite, ...]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    lines: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """The source lines that have code, by kernel and file."""

    def matched(self, kernel: str) -> set[str]:
        """The names of the line ranges that contain code of this kernel."""
        return {site.region for site in self.sites.get(kernel, ()) if site.kind == "ranges"}


def mark_ptx(text: str, auto: Auto, wants: Callable[[str], bool] = lambda kernel: True) -> Marked:
    """Mark every kernel of `text` whose symbol `wants` accepts.

    Called functions are not marked; their time counts towards the region of the call.
    """
    if not auto or text.startswith(MARKED):
        return Marked(text)
    with garbage_pause():
        return _marked(text, auto, wants)


def _marked(text: str, auto: Auto, wants: Callable[[str], bool]) -> Marked:
    module = parse(text)
    files = module.files
    sites: dict[str, tuple[RegionSite, ...]] = {}
    left_out: dict[str, int] = {}
    lines: dict[str, dict[str, set[int]]] = {}
    for function in module.entries:
        if not wants(function.name):
            continue
        end_with_return(function)
        code = FunctionUnits(function, files)
        loops = natural_loops(code)
        if auto.wants("waits") and split_polling_edges(code, loops):
            code = FunctionUnits(function, files)
            loops = natural_loops(code)
        lines[function.name] = code.lines
        regions = find(code, auto, loops)
        kept = sorted(regions, key=_priority)[: auto.most]
        if kept:
            sites[function.name] = tuple(_Writer(code, kept).write())
        if auto.wants("edges") and code.marks:
            mark_function(code, loops, of_blocks=auto.wants_block_barriers)
        if len(kept) < len(regions):
            left_out[function.name] = len(regions) - len(kept)
    return Marked(MARKED + module.text() if sites else text, sites, left_out, lines)


def mark_unmarked_code(text: str) -> str:
    """Add regions around code of marked kernels that is in no region yet.

    This is code that the compiler added later, such as the dispatch of warps in a warp-specialised kernel.
    """
    module = parse(text)
    for function in module.entries:
        end_with_return(function)
        code = FunctionUnits(function, module.files)
        if not code.cuts:
            continue
        inside = code.inside()
        lines = _named(worked_lines(code, code.cuts, inside, []))
        cuts = code.cuts | _gaps(lines)
        _Writer(code, [*lines, *Operations(code, ("waits", "barriers"), cuts, inside).find()]).write()
    return module.text()


def find(code: FunctionUnits, auto: Auto, loops: list[Loop]) -> list[FoundRegion]:
    """All regions that the rules find in one function with these loops."""
    if auto.coarse:
        return coarse_regions(code, loops if auto.coarse == "loops" else None)
    ranges = list(line_ranges(code, auto.ranges))
    spinning = list(spins(code, loops)) if auto.wants("waits") else []
    claimed = {  # also in a polling loop that cannot be marked, as each round would leave a record
        at
        for loop in loops
        if loop.tests
        for number in loop.body
        for at in range(code.blocks[number].start, code.blocks[number].stop)
    }
    found = ranges + [region for _, region in spinning]
    cuts = code.cuts | _gaps(found)
    waits = {id(loop) for loop, _ in spinning}
    working = [loop for loop in loops if id(loop) not in waits]
    if auto.wants("loops"):
        found += iterations(code, working)
    lines = _lines(code, auto, loops, found, cuts, claimed) if auto.wants("lines") else []
    cuts |= _gaps(lines)
    found += lines + list(Operations(code, auto.classes, cuts, claimed).find())
    if auto.covers_gaps:
        marks = code.cuts | _gaps(found)
        found += whole_loops(code, [loop for loop in working if _has_no_mark(code, loop, marks)])
    return found


def _gaps(regions: Iterable[FoundRegion]) -> set[int]:
    return {gap for region in regions for gap in (*region.begins, *region.ends)}


def _has_no_mark(code: FunctionUnits, loop: Loop, marks: set[int]) -> bool:
    """Whether a loop contains no mark, so that its time would be in no region."""
    blocks = [code.blocks[number] for number in loop.body]
    return all(marks.isdisjoint(range(block.start, block.stop)) for block in blocks)


def _lines(
    code: FunctionUnits, auto: Auto, loops: list[Loop], found: list[FoundRegion], cuts: set[int], claimed: set[int]
) -> list[FoundRegion]:
    """Regions of branches, loops and lines. Code without a line is only marked if all code must be covered."""
    around = branch_regions(code, [loop for loop in loops if not _is_spin(code, loop, claimed)], found, claimed)
    lines = [*around, *worked_lines(code, cuts, claimed, around)]
    return _named(lines) if auto.covers_all_code else [line for line in lines if line.location is not None]


def _named(lines: Iterable[FoundRegion]) -> list[FoundRegion]:
    return [replace(line, prefix="work") if line.location is None else line for line in lines]


def _is_spin(code: FunctionUnits, loop: Loop, claimed: set[int]) -> bool:
    return code.blocks[loop.header].start in claimed


def _priority(region: FoundRegion) -> tuple[int, ...]:
    """Sort key of the regions to keep; among lines, the largest first."""
    rank = _PRIORITY.get(region.kind, 2)
    return (rank, -region.size, region.begin) if region.kind == "lines" else (rank, region.begin)


class _Writer:
    """Writes one function's regions into its body."""

    def __init__(self, code: FunctionUnits, regions: list[FoundRegion]) -> None:
        self.code, self.regions = code, regions
        self.kernel = plain_name(code.function.name)

    def write(self) -> list[RegionSite]:
        """Insert the marks into the function's body, and into the marks of its units."""
        gaps: dict[int, list[_GapPart]] = defaultdict(list)
        declared = []
        sites: list[tuple[int, tuple[int, ...], int, RegionSite]] = []
        for number, region in enumerate(self.regions):
            name, nesting = self.name(region), region.nesting
            sites.append((region.begin, nesting, number, RegionSite(name, region.kind, self._where(region))))
            word = encode_name(name)
            begin, end = f"\t// {PREFIX}B {word}", f"\t// {PREFIX}E {word}"
            if region.awaits:
                end = "\n".join([*self._awaited(region), end])
            if region.counter:
                declared.append(region.counter)
                for gap in region.starts:
                    gaps[gap].append(((0,), f"\tmov.u32 {region.counter}, 0;", ()))
                value = f"\t// {PREFIX}V {word} u32 {region.counter}"
                begin += f"\n{value}\n\tadd.u32 {region.counter}, {region.counter}, 1;"
            opening = (_OPENS, *nesting)
            if region.ends == region.begins:
                gaps[region.begin].append((opening, f"{begin}\n{end}", (("B", word), ("E", word))))
                continue
            # Ends precede begins; the innermost end and the outermost begin come first.
            for gap in region.begins:
                gaps[gap].append((opening, begin, (("B", word),)))
            # Of regions that begin and end together, the first is the outer one.
            closing = (_CLOSES, -nesting[0], -nesting[1], -nesting[2], -region.begin, -number)
            for gap in region.ends:
                gaps[gap].append((closing, end, (("E", word),)))
        self._insert(gaps)
        if declared:
            body = self.code.function.body
            assert body is not None
            body.insert(0, Raw.of(f"\t.reg .b32 {', '.join(declared)};"))
        return [site for *_, site in sorted(sites, key=operator.itemgetter(0, 1, 2))]

    def _insert(self, gaps: dict[int, list[_GapPart]]) -> None:
        edits, code = Edits(), self.code
        for gap, parts in gaps.items():
            if len(parts) > 1:
                parts.sort(key=operator.itemgetter(0))
            by_hand, before = code.marks.get(gap), []
            if by_hand and gap:
                # Regions that end at hand-written marks end before them.
                before = [part for part in parts if part[0][0] < _OPENS]
                parts = parts[len(before) :]
            if before:
                edits.after(*_place(code.units[gap - 1]), _raw(before))
            if parts and gap < len(code.units):
                edits.before(*_place(code.units[gap]), _raw(parts))
            elif parts:  # a function that ends without a return
                edits.after(*_place(code.units[-1]), _raw(parts))
            code.marks[gap] = [*_marks(before), *(by_hand or ()), *_marks(parts)]
        edits.apply()

    def name(self, region: FoundRegion) -> str:
        if region.kind == "ranges":
            return region.prefix
        if region.location is None:
            return f"{region.prefix} {self.kernel}+{region.number}"
        return region_name(region.prefix, *region.location)

    def _awaited(self, region: FoundRegion) -> list[str]:
        return ["\t" + arrived(register, self.code.size_of(register)) for register in region.awaits]

    @staticmethod
    def _where(region: FoundRegion) -> str:
        return f"{region.location[0]}:{region.location[1]}" if region.location else ""


def _place(unit: Unit) -> tuple[list[Node], Node]:
    return unit.holder, unit.node


def _raw(parts: list[_GapPart]) -> Raw:
    return Raw.of("\n".join([text for _, text, _ in parts]) + "\n")


def _marks(parts: list[_GapPart]) -> list[tuple[str, str]]:
    return [mark for _, _, marks in parts for mark in marks]
