"""mark_ptx(): insert the marks that `Auto` requests into PTX as comments, for `weave` to expand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from warplens.auto.ptx.barrier_marks import mark_barriers
from warplens.auto.ptx.branch_regions import branch_regions
from warplens.auto.ptx.coarse_regions import coarse_regions, whole_loops
from warplens.auto.ptx.edge_splits import split_polling_edges
from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.line_regions import line_ranges, worked_lines
from warplens.auto.ptx.loop_regions import Loop, iterations, natural_loops, spins, tested
from warplens.auto.ptx.operation_regions import Operations
from warplens.auto.ptx.units import FunctionUnits, Unit
from warplens.auto.ptx.value_arrival import arrived
from warplens.auto.rules import Auto, RegionSite, region_name
from warplens.ptx.edits import Edits
from warplens.ptx.garbage_pause import garbage_pause
from warplens.ptx.labels import end_with_return
from warplens.ptx.symbols import plain_name
from warplens.ptx.tree import Node, Raw, parse
from warplens.weave.mark_comments import mark_text

MARKED = "// @marked\n"
"""The first line of marked text, which prevents marking it twice."""

_PRIORITY = {"body": 0, "ranges": 0, "loops": 1, "lines": 3}
"""Which regions to keep first when there are more than `Auto.most`; operations have priority 2."""

_CLOSES, _OPENS = 1, 2


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
        if auto.wants("waits") and split_polling_edges(code):
            code = FunctionUnits(function, files)
        lines[function.name] = code.lines()
        regions = find(code, auto)
        kept = sorted(regions, key=_priority)[: auto.most]
        if kept:
            sites[function.name] = tuple(_Writer(code, kept).write())
        if len(kept) < len(regions):
            left_out[function.name] = len(regions) - len(kept)
    if sites:
        text = MARKED + module.text()
        text = mark_barriers(text, of_blocks=auto.wants_block_barriers) if auto.wants("edges") else text
    return Marked(text, sites, left_out, lines)


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
        cuts = code.cuts | {gap for region in lines for gap in region.gaps}
        _Writer(code, [*lines, *Operations(code, ("waits", "barriers"), cuts, inside).find()]).write()
    return module.text()


def find(code: FunctionUnits, auto: Auto) -> list[FoundRegion]:
    """All regions that the rules find in one function."""
    if auto.coarse:
        return coarse_regions(code, loops=auto.coarse == "loops")
    ranges = list(line_ranges(code, auto.ranges))
    loops = natural_loops(code)
    spinning = list(spins(code, loops)) if auto.wants("waits") else []
    claimed = {  # also in a polling loop that cannot be marked, as each round would leave a record
        at
        for loop in loops
        if tested(code, loop)
        for number in loop.body
        for at in range(code.blocks[number].start, code.blocks[number].stop)
    }
    cuts = code.cuts | {gap for region in ranges for gap in region.gaps}
    cuts |= {gap for _, region in spinning for gap in region.gaps}
    found = ranges + [region for _, region in spinning]
    waits = {id(loop) for loop, _ in spinning}
    working = [loop for loop in loops if id(loop) not in waits]
    if auto.wants("loops"):
        found += iterations(code, working)
    lines = _lines(code, auto, loops, found, cuts, claimed) if auto.wants("lines") else []
    cuts |= {gap for region in lines for gap in region.gaps}
    found += lines + list(Operations(code, auto.classes, cuts, claimed).find())
    if auto.covers_gaps:
        marks = code.cuts | {gap for region in found for gap in region.gaps}
        found += whole_loops(code, [loop for loop in working if _has_no_mark(code, loop, marks)])
    return found


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
        gaps: dict[int, list[tuple[tuple[int, ...], list[str]]]] = defaultdict(list)
        declared = []
        for order, region in enumerate(self.regions):
            name = self.name(region)
            begin, end = [_comment("B", name)], [*self._awaited(region), _comment("E", name)]
            if region.counter:
                declared.append(region.counter)
                for gap in region.starts:
                    gaps[gap].append(((0,), [f"\tmov.u32 {region.counter}, 0;"]))
                begin += [
                    _comment("V", name, "u32", region.counter), f"\tadd.u32 {region.counter}, {region.counter}, 1;"
                ]  # fmt: skip
            if region.ends == region.begins:
                gaps[region.begin].append(((_OPENS, *region.opening), [*begin, *end]))
                continue
            # Ends precede begins; the innermost end and the outermost begin come first.
            for gap in region.begins:
                gaps[gap].append(((_OPENS, *region.opening, order), begin))
            for gap in region.ends:
                gaps[gap].append(((_CLOSES, *region.closing, -order), end))
        edits = Edits()
        for gap, texts in gaps.items():
            ordered = sorted(texts, key=lambda item: item[0])
            closing = [line for key, part in ordered if key[0] < _OPENS for line in part]
            opening = [line for key, part in ordered if key[0] == _OPENS for line in part]
            if gap and gap in self.code.cuts and closing:
                # Hand-written marks are in this gap; regions that end here end before them.
                edits.after(*_place(self.code.units[gap - 1]), _raw(closing))
                closing = []
            if closing or opening:
                edits.before(*_place(self.code.units[gap]), _raw(closing + opening))
        edits.apply()
        if declared:
            body = self.code.function.body
            assert body is not None
            body.insert(0, Raw.of(f"\t.reg .b32 {', '.join(declared)};"))
        by_place = sorted(self.regions, key=lambda region: (region.begin, region.opening))
        return [RegionSite(self.name(region), region.kind, self._where(region)) for region in by_place]

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


def _raw(lines: list[str]) -> Raw:
    return Raw.of("\n".join(lines) + "\n")


def _comment(letter: str, name: str, *operands: str) -> str:
    return "\t// " + mark_text(letter, name, *operands)
