"""Compare the regions of a marked PTX text with the machine code that ptxas made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from warplens.ptx.dominators import reached
from warplens.ptx.syntax import PtxError
from warplens.sass.between_regions import START, between_regions
from warplens.sass.cubin_file import NoLineTable, SassError, read_cubin_file
from warplens.sass.disassembly import OTHER_SECTIONS, SassFunction, SassInstruction, disassemble, linked
from warplens.sass.main_work import EMPTY, main_work_flag
from warplens.sass.marked_lines import MarkedLines, marked_lines
from warplens.sass.opcode_classes import opcode_fingerprint
from warplens.sass.open_regions import OPEN, RegionEdge, State, follow
from warplens.sass.verified_regions import (
    MAX_EXAMPLES,
    MAX_INSTANCES,
    MAX_RANGES,
    MAX_REGIONS,
    MAX_SOURCE_LINES,
    KernelVerification,
    MovedInstruction,
    RegionCode,
    RegionInstance,
    ranges_of,
)
from warplens.weave.code_between import OUTSIDE

_STEP = 16
"""Bytes of an instruction."""


def verify_cubin(
    cubin: bytes,
    kernel: str,
    ptx: str = "",
    names: Mapping[str, str] | None = None,
    *,
    name: str = "",
    source: str = "",
    automatic: bool = False,
    numbered: bool = False,
) -> KernelVerification:
    """Verify the regions of `kernel`. `ptx` is the text it was assembled from, with marks; without it the text in the
    cubin is used, which has no comments. `names` are the names of regions that the text only numbers. `automatic` says
    that rules placed the marks: then regions may be empty, such as those that wait for a value. `numbered` says that
    the cubin was made of the text with numbered lines."""
    file = read_cubin_file(cubin)
    if kernel not in file.kernels:
        known = ", ".join(file.kernels[:4]) or "none"
        raise SassError(f"the cubin has no kernel {kernel}; it has {known}")
    if not file.has_lines and not numbered:
        raise NoLineTable("the cubin has no line table; assemble it with -lineinfo")
    if ptx and file.ptx and not numbered and not _same_text(ptx, file.ptx):
        raise SassError("its PTX is not the text that its machine code was assembled from")
    functions = disassemble(cubin, by_loc=numbered)
    function = linked(functions, kernel)
    if not functions[kernel].has_lines:
        raise NoLineTable("the line table of the cubin does not cover the kernel; assemble it with -lineinfo")
    try:
        lines = marked_lines(ptx or file.ptx, kernel, automatic=automatic)
    except PtxError as error:
        raise SassError(f"its PTX cannot be read: {error}") from None
    if not lines.clocks and not lines.point_clocks:
        raise SassError("no marks were found in its PTX" + ("" if ptx else ", which the cubin holds without comments"))
    found = verify_function(function, lines, names or {}, name=name or kernel, source=source)
    if not automatic:
        return found
    regions = (replace(one, flag="" if one.flag == EMPTY else one.flag) for one in found.regions)
    return replace(found, regions=tuple(regions))


def _same_text(ptx: str, embedded: str) -> bool:
    """Whether a text is the one in a cubin, which has lost comments, `.loc` and `.file`, and white space."""
    ours, theirs = (text.replace("\0", "").rstrip().split("\n") for text in (ptx, embedded.rstrip("\n")))
    pairs = (("".join(one.split()), "".join(other.split())) for one, other in zip(ours, theirs, strict=False))
    return len(ours) >= len(theirs) and all(one.startswith(other) for one, other in pairs if other)


def verify_function(
    function: SassFunction, lines: MarkedLines, names: Mapping[str, str], *, name: str = "", source: str = ""
) -> KernelVerification:
    """Compare one kernel's disassembly with what its PTX says."""
    placed = _place(function, lines)
    regions: dict[str, _Tally] = {region: _Tally() for region in [*lines.names, *lines.pairs.values()]}
    for one, _ in placed:
        for edge in _edges_at(one, lines):
            if edge.kind == OPEN:
                regions[edge.region].instances.setdefault(one.address, Counter())
    unmarked = set(lines.pairs.values())
    counts: Counter[str] = Counter()
    own = 0
    for one, state in placed:
        is_own = one.line in lines.own
        own += is_own
        counts[one.kind] += not is_own
        inside = {known.region: known.since for known in state}
        belongs = lines.owners(one.line) if lines.knows(one.line) else set(inside)
        for region, since in inside.items():
            tally = regions.setdefault(region, _Tally())
            innermost = state[-1].region == region or region in unmarked
            tally.add_inside(one, since, is_own, region in belongs, innermost=innermost)
        if not is_own:
            for region in belongs - inside.keys():
                regions.setdefault(region, _Tally()).moved_out.append(one)
    seen = {edge.region for one, _ in placed if one.reads_clock for edge in lines.clocks.get(one.line, ())}
    missing = [region for region in lines.names if region not in seen]
    seen |= {own for (after, before), own in lines.pairs.items() if {after, before} <= {OUTSIDE, *seen}}
    return KernelVerification(
        name or function.name,
        tuple(
            tally.result(region, lines, names)
            for region, tally in list(regions.items())[:MAX_REGIONS]
            if region in seen
        ),
        len(placed),
        own,
        dict(counts),
        tuple(names.get(region, region) for region in missing),
        source,
        opcode_fingerprint(one.text for one in function.instructions if one.address < OTHER_SECTIONS),
    )


def _place(function: SassFunction, lines: MarkedLines) -> list[tuple[SassInstruction, State]]:
    """Every instruction that can be reached, with the regions that it is in. A clock read is in what it ends: a warp
    that waits to issue it is still there."""
    edges = [_edges_at(one, lines) for one in function.instructions]
    along = [[(one.address, marks)] if marks else [] for one, marks in zip(function.instructions, edges, strict=True)]
    successors = function.successors()
    entered = follow(successors, along, calls=function.calls())
    between = _between(function, successors, lines, entered) if lines.pairs else [()] * len(entered)
    states = zip(function.instructions, entered, between, strict=True)
    return [(one, state or unmarked) for one, state, unmarked in states if state is not None]


def _between(
    function: SassFunction, successors: Sequence[Sequence[int]], lines: MarkedLines, entered: Sequence[State | None]
) -> list[State]:
    """The code between regions that each instruction is part of; a subroutine is part of what its calls are part of."""
    edges = [_outer_edges_at(one, lines) for one in function.instructions]
    places = [one.address for one in function.instructions]
    found = between_regions(successors, edges, entered, places, lines.pairs)
    for call, target in function.calls().items():
        for number in reached(successors, [target]):
            found[number] = tuple(dict.fromkeys([*found[number], *found[call]]))
    return found


def _outer_edges_at(one: SassInstruction, lines: MarkedLines) -> Sequence[RegionEdge]:
    """The marks of an instruction, and the start or exit of the warp that it times."""
    outer = lines.outer_clocks.get(one.line) if one.reads_clock else None
    marks = _edges_at(one, lines)
    return marks if outer is None else (outer, *marks) if outer == START else (*marks, outer)


def _edges_at(one: SassInstruction, lines: MarkedLines) -> Sequence[RegionEdge]:
    return lines.clocks.get(one.line, ()) if one.reads_clock else ()


@dataclass
class _Tally:
    """What is known of one region while the instructions are gone through."""

    kept: list[SassInstruction] = field(default_factory=list)
    moved_in: list[SassInstruction] = field(default_factory=list)
    moved_out: list[SassInstruction] = field(default_factory=list)
    own: int = 0
    addresses: list[int] = field(default_factory=list)
    innermost: list[int] = field(default_factory=list)
    instances: dict[int, Counter[str]] = field(default_factory=dict)
    own_by_instance: Counter[int] = field(default_factory=Counter)

    def add_inside(self, one: SassInstruction, since: int, own: bool, belongs: bool, *, innermost: bool) -> None:
        if one.address < OTHER_SECTIONS:
            self.addresses.append(one.address)
        if innermost and one.address < OTHER_SECTIONS:
            self.innermost.append(one.address)
        copy = self.instances.setdefault(since, Counter())
        if own:
            self.own += 1
            self.own_by_instance[since] += 1
            return
        copy[one.kind] += 1
        (self.kept if belongs else self.moved_in).append(one)

    def result(self, raw: str, lines: MarkedLines, names: Mapping[str, str]) -> RegionCode:
        ranges = ranges_of(self.addresses, _STEP)
        out = [_moved(one, _where(one.address, sorted(self.instances), ranges), "") for one in self.moved_out]
        inside = [_moved(one, "inside", _owners(one, lines, names)) for one in self.moved_in]
        kept, lost = _count(self.kept), _count(self.moved_out)
        return RegionCode(
            names.get(raw, raw),
            len(self.kept),
            len(self.moved_in),
            len(self.moved_out),
            self.own,
            dict(_count([*self.kept, *self.moved_in])),
            dict(_count(self.moved_in)),
            dict(lost),
            main_work_flag(
                kept,
                lost,
                _count(self.moved_in),
                Counter((one.kind, one.where) for one in out),
                list(self.instances.values()),
            ),
            len(self.instances),
            tuple(
                RegionInstance(begin % OTHER_SECTIONS, sum(copy.values()), self.own_by_instance[begin], dict(copy))
                for begin, copy in sorted(self.instances.items())[:MAX_INSTANCES]
            ),
            (*_main_examples(out), *_main_examples(inside)),
            ranges[:MAX_RANGES],
            ranges_of(self.innermost, _STEP)[:MAX_RANGES],
            lines.source_lines(raw)[:MAX_SOURCE_LINES],
        )


def _count(instructions: Sequence[SassInstruction]) -> Counter[str]:
    return Counter(one.kind for one in instructions)


def _moved(one: SassInstruction, where: str, belongs: str) -> MovedInstruction:
    return MovedInstruction(one.address % OTHER_SECTIONS, one.text, one.kind, where, one.line, belongs)


def _main_examples(moved: Sequence[MovedInstruction]) -> list[MovedInstruction]:
    """The examples that a trace keeps: memory and tensor instructions first."""
    minor = ("integer", "move", "branch", "other")
    return sorted(moved, key=lambda one: (one.kind in minor, one.address))[:MAX_EXAMPLES]


def _where(address: int, begins: Sequence[int], ranges: Sequence[tuple[int, int]]) -> str:
    """On which side of the nearest copy of the region an instruction is."""
    nearest = min(ranges, key=lambda one: min(abs(address - one[0]), abs(address - one[1])), default=None)
    if nearest is None:
        return "before" if any(address < begin for begin in begins) else "after"
    return "before" if address < nearest[0] else "after"


def _owners(one: SassInstruction, lines: MarkedLines, names: Mapping[str, str]) -> str:
    """The innermost region to which an instruction belongs; empty for code outside all regions."""
    state = lines.regions.get(one.line, ())
    known = lines.by_source.get(one.line) or lines.between.get(one.line) or set()
    region = state[-1].region if state else min(known, default="")
    return names.get(region, region)
