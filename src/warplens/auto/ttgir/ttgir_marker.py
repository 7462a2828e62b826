"""mark_ttgir(): insert the marks that `Auto` requests into TTGIR."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warplens.auto.rules import Auto, LineRange, RegionSite, region_name
from warplens.auto.ttgir.locations import Frame, Locations
from warplens.auto.ttgir.mark_emitter import Emitter
from warplens.auto.ttgir.operation_classes import LOOPS, is_constant, is_mark, is_open
from warplens.auto.ttgir.operation_spans import (
    LOOP,
    Span,
    line_spans,
    nested,
    operation_spans,
    range_spans,
    regions_around,
)
from warplens.auto.ttgir.operation_tree import Op, OperationBlock, parse


@dataclass(frozen=True)
class MarkedIR:
    """A marked module: its text, the marked sites, and what was left out."""

    text: str
    sites: tuple[RegionSite, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The number of sites of each class that exceeded `Auto.most`."""
    matched: frozenset[str] = frozenset()
    """The names of the line ranges that contain code of this kernel."""
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The lines of each source file that have code in this kernel."""

    @property
    def locations(self) -> dict[str, str]:
        """The full source location of each region."""
        return {site.region: site.location for site in self.sites if site.location}


def mark_ttgir(text: str, auto: Auto) -> MarkedIR:
    """Insert the marks that `auto` requests. Regions never cross blocks, and nest: loop, range, line, operation."""
    return _TtgirMarker(text, auto).mark()


class _TtgirMarker:
    def __init__(self, text: str, auto: Auto) -> None:
        self.auto = auto
        self.lines = text.split("\n")
        self.locations = Locations(text)
        self.top = parse(self.lines)
        self.spans: list[tuple[OperationBlock, Op | None, Span]] = []
        """Each span with its block and, if it is an iteration, its loop."""
        self.matched: set[str] = set()
        self.enclosing: Frame | None = None

    def mark(self) -> MarkedIR:
        for op in self._functions():
            self._op(op, 0, self.auto.ranges, ())
        kept, dropped = self._cap()
        emitter = Emitter(self.lines, self.top)
        by_block: dict[int, list[tuple[Op | None, Span]]] = defaultdict(list)
        blocks: dict[int, OperationBlock] = {}
        for block, loop, span in kept:
            by_block[id(block)].append((loop, span))
            blocks[id(block)] = block
        for key, spans in by_block.items():
            emitter.block(blocks[key], spans)
        return MarkedIR(
            emitter.text(), tuple(span.site for _, _, span in kept), dropped, frozenset(self.matched), self._code()
        )

    def _functions(self) -> Iterator[Op]:
        """All functions, inside a module or at top level."""
        for op in self.top:
            if op.name in ("module", "builtin.module"):
                yield from (inner for block in op.blocks for inner in block.ops)
            else:
                yield op

    def _op(self, op: Op, depth: int, ranges: tuple[LineRange, ...], open_names: tuple[str, ...]) -> None:
        if not is_open(op):
            return
        before = self.enclosing
        self.enclosing = self._frame(op) or before
        for number, region in enumerate(op.regions):
            for block in region:
                # The first region of a while loop is its condition.
                iteration = op.name in LOOPS and number == len(op.regions) - 1
                self._block(block, op if iteration else None, depth, ranges, open_names)
        self.enclosing = before

    def _block(
        self, block: OperationBlock, loop: Op | None, depth: int, ranges: tuple[LineRange, ...], names: tuple[str, ...]
    ) -> None:
        ops = block.body
        if loop is not None:
            depth += 1
            if self.auto.wants("loops") and ops:
                name = _distinct(self._name("loop", loop), names)
                names += (name,)
                site = RegionSite(name, "loops", self._where(loop))
                self.spans.append((block, loop, Span(0, len(ops), LOOP, site, depth)))
        chosen = nested([span for wanted in ranges for span in self._ranges(wanted, ops, depth)])
        self.matched.update(span.site.region for span in chosen)
        spans = list(chosen)
        if self.auto.wants("lines"):
            # The region of the loop's own line encloses its body, so the body needs no region for that line.
            lines = line_spans(ops, self._frame, self._line, _edges(spans), depth)
            spans += [span for span in lines if span.site.region not in names]
        spans += operation_spans(ops, self.auto.wants, self._same_line, self._operation, _edges(spans), depth)
        self.spans += [(block, None, span) for span in spans]
        around_each = regions_around(spans, [index for index, op in enumerate(ops) if is_open(op)])
        for index, op in enumerate(ops):
            if is_open(op):
                around = around_each[index]
                rest = tuple(wanted for wanted in ranges if wanted.name not in around)
                self._op(op, depth, rest, names + around)

    def _frame(self, op: Op) -> Frame | None:
        frames = self.locations.frames(op.location)
        return frames[0] if frames else None

    def _name(self, what: str, op: Op) -> str:
        frame = self._frame(op) or self.enclosing
        return region_name(what, frame.file, frame.line) if frame else what

    def _where(self, op: Op) -> str:
        return str(self._frame(op) or self.enclosing or "")

    def _line(self, frame: Frame) -> RegionSite:
        return RegionSite(region_name("line", frame.file, frame.line), "lines", str(frame))

    def _operation(self, op: Op, last: Op, kind: str, what: str) -> RegionSite:
        first, other = self._frame(op), self._frame(last)
        name = self._name(what, op)
        if first is not None and other is not None and first.file == other.file and first.line < other.line:
            name += f"-{other.line}"
        return RegionSite(name, kind, self._where(op))

    def _same_line(self, one: Op, other: Op) -> bool:
        a, b = self._frame(one), self._frame(other)
        return a is not None and b is not None and (a.file, a.line) == (b.file, b.line)

    def _ranges(self, wanted: LineRange, ops: list[Op], depth: int) -> list[Span]:
        files = (frame.file for op in ops for frame in self.locations.frames(op.location) if _holds(wanted, frame))
        site = RegionSite(wanted.name, "ranges", f"{next(files, wanted.file)}:{wanted.first}-{wanted.last}")
        return range_spans(ops, lambda op: self._inside(op, wanted), site, depth)

    def _inside(self, op: Op, wanted: LineRange) -> bool:
        """Whether the operation, or everything inside it, is in the range."""
        if is_open(op):
            inner = [leaf for leaf in _leaves(op) if self.locations.frames(leaf.location)]
            return bool(inner) and all(self._inside(leaf, wanted) for leaf in inner)
        return any(_holds(wanted, frame) for frame in self.locations.frames(op.location))

    def _cap(self) -> tuple[list[tuple[OperationBlock, Op | None, Span]], dict[str, int]]:
        """Drop spans so that at most `Auto.most` sites remain.

        Lines are dropped first, then the classes with the most sites. Within a class, the innermost loops are dropped
        first, and among lines the shortest. Line ranges were requested by name and are kept.
        """
        count = Counter(span.site.kind for _, _, span in self.spans)
        limit = self.auto.most - count.pop("ranges", 0)
        dropped: dict[str, int] = {}
        for kind, sites in sorted(count.items(), key=lambda item: (item[0] != "lines", -item[1])):
            over = sum(count.values()) - sum(dropped.values()) - max(limit, 0)
            if over > 0:
                dropped[kind] = min(over, sites)
        to_drop = dict(dropped)
        indices: set[int] = set()
        for index in sorted(range(len(self.spans)), key=lambda i: (*_worth(*self.spans[i]), -i)):
            kind = self.spans[index][2].site.kind
            if to_drop.get(kind):
                to_drop[kind] -= 1
                indices.add(index)
        return [span for index, span in enumerate(self.spans) if index not in indices], dropped

    def _code(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, set[int]] = defaultdict(set)
        for top in self.top:
            for op in _leaves(top):
                if not is_constant(op) and not is_mark(op):
                    for frame in self.locations.frames(op.location):
                        found[frame.file].add(frame.line)
        return {file: tuple(sorted(lines)) for file, lines in found.items()}


def _worth(block: OperationBlock, loop: Op | None, span: Span) -> tuple[int, int, int]:
    """Sort key of spans to drop: the most deeply nested first, among lines those without a loop, then short ones."""
    if span.site.kind != "lines":
        return -span.depth, 0, 0
    ops = block.ops[span.start : span.stop]
    return -span.depth, sum(op.name in LOOPS for op in ops), ops[-1].last - ops[0].first


def _edges(spans: list[Span]) -> set[int]:
    return {edge for span in spans for edge in (span.start, span.stop)}


def _holds(wanted: LineRange, frame: Frame) -> bool:
    return wanted.holds(frame.file, frame.line)


def _leaves(op: Op) -> Iterator[Op]:
    """The operations inside `op`, except loops, branches, terminators and the bodies of reductions."""
    if not is_open(op):
        yield op
        return
    for block in op.blocks:
        for inner in block.body:
            yield from _leaves(inner)


def _distinct(name: str, used: tuple[str, ...]) -> str:
    """Add a number to a name if an enclosing region has the same name."""
    number, wanted = 2, name
    while wanted in used:
        number, wanted = number + 1, f"{name} ({number})"
    return wanted
