"""Regions inside one block, as spans of operations that nest and never cross."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warplens.auto.rules import RegionSite
from warplens.auto.ttgir.load_regions import load_regions
from warplens.auto.ttgir.locations import Frame
from warplens.auto.ttgir.operation_classes import classify, does_work, is_constant, is_mark, is_open
from warplens.auto.ttgir.operation_tree import Op

LOOP, RANGE, LINE, OPERATION = range(4)
"""Nesting order, from the outside in, of spans that cover the same operations."""


@dataclass(frozen=True)
class Span:
    """Operations [start, stop) of a block as one region."""

    start: int
    stop: int
    level: int
    site: RegionSite
    depth: int = 0
    """The number of enclosing loops."""


def range_spans(ops: list[Op], inside: Callable[[Op], bool], site: RegionSite, depth: int) -> list[Span]:
    """Spans from the first to the last operation inside a line range, split at other loops and branches.

    Free operations may have been moved far away (hoisted, shared), so they only count if the range has no others.
    """
    found = [i for i, op in enumerate(ops) if not is_constant(op) and not is_mark(op) and inside(op)]
    working = [i for i in found if does_work(ops[i])]
    chosen = working or found
    spans: list[Span] = []
    for index in chosen:
        if spans and not any(is_open(op) for op in ops[spans[-1].stop : index]):
            spans[-1] = Span(spans[-1].start, index + 1, RANGE, site, depth)
        else:
            spans.append(Span(index, index + 1, RANGE, site, depth))
    return [part for span in spans for part in _around_marks(ops, span)]


def _around_marks(ops: list[Op], span: Span) -> list[Span]:
    """Split a span at its marks, if it contains the begin of a region without its end or the reverse."""
    marks = [i for i in range(span.start, span.stop) if is_mark(ops[i])]
    if not marks or _balanced(ops[i] for i in marks):
        return [span]
    edges = [span.start, *(edge for i in marks for edge in (i, i + 1)), span.stop]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [Span(a, b, span.level, span.site, span.depth) for a, b in pairs if a < b]


def _balanced(marks: Iterable[Op]) -> bool:
    names: list[str] = []
    for mark in marks:
        letter, name = mark.header.partition("@warplens ")[2].partition('"')[0].split()[:2]
        if letter == "B":
            names.append(name)
        elif letter == "E" and (not names or names.pop() != name):
            return False
    return not names


def nested(spans: list[Span]) -> list[Span]:
    """Split spans so that none crosses another."""
    done: list[Span] = []
    edges: list[tuple[int, int]] = []
    """The edges of the spans in `done`, in order, each with the number of its span."""
    for span in sorted(spans, key=lambda s: s.start - s.stop):
        pieces = [span]
        inside = edges[bisect.bisect_left(edges, (span.start + 1, 0)) : bisect.bisect_left(edges, (span.stop, 0))]
        for number, edge in sorted((number, edge) for edge, number in inside):
            pieces = [
                Span(a, b, piece.level, piece.site, piece.depth)
                for piece in pieces
                for a, b in _cut(piece, edge, done[number])
            ]
        for piece in pieces:
            for edge in (piece.start, piece.stop):
                bisect.insort(edges, (edge, len(done)))
            done.append(piece)
    return done


def regions_around(spans: list[Span], places: list[int]) -> dict[int, tuple[str, ...]]:
    """The names of the regions around each of the ascending `places`, in the order of `spans`."""
    starting = sorted(range(len(spans)), key=lambda number: spans[number].start)
    found: dict[int, tuple[str, ...]] = {}
    active: list[int] = []
    at = 0
    for place in places:
        while at < len(starting) and spans[starting[at]].start <= place:
            bisect.insort(active, starting[at])
            at += 1
        active = [number for number in active if spans[number].stop > place]
        found[place] = tuple(spans[number].site.region for number in active)
    return found


def _cut(span: Span, edge: int, other: Span) -> list[tuple[int, int]]:
    crosses = span.start < edge < span.stop and not (span.start <= other.start and other.stop <= span.stop)
    return [(span.start, edge), (edge, span.stop)] if crosses else [(span.start, span.stop)]


def line_spans(
    ops: list[Op],
    line_of: Callable[[Op], Frame | None],
    site: Callable[[Frame], RegionSite],
    cuts: set[int],
    depth: int,
) -> list[Span]:
    """Divide the block into spans of one source line each; loops and branches count as their own line.

    The first span starts with the block, and each span ends where the next line's work begins. So nothing is left out,
    and the end of one span and the begin of the next share a clock read.
    """
    # Scalar code is negligible next to tensor operations, but counts as work where there are none.
    works = _takes_time if any(_takes_time(op) for op in ops) else _any_code
    spans: list[Span] = []
    start, current = 0, None
    for index, op in enumerate([*ops, None]):
        ends = op is None or index in cuts or is_mark(op)
        here = line_of(op) if op is not None and not is_mark(op) and works(op) else None
        new = here is not None and current is not None and (here.file, here.line) != (current.file, current.line)
        if current is not None and (ends or new):
            spans.append(Span(start, index, LINE, site(current), depth))
            start, current = index, None
        if ends:
            start = index + 1 if op is not None and is_mark(op) else index
        current = current or here
    return spans


def _takes_time(op: Op) -> bool:
    return holds_work(op) if is_open(op) else does_work(op) and not is_mark(op)


def _any_code(op: Op) -> bool:
    return not is_constant(op)


def holds_work(op: Op) -> bool:
    """Whether the operation contains work, a mark, or an operation that belongs to a class."""
    return any(
        classify(inner) is not None or is_mark(inner) or does_work(inner) or holds_work(inner)
        for block in op.blocks
        for inner in block.body
    )


def operation_spans(
    ops: list[Op],
    wanted: Callable[[str], bool],
    same_line: Callable[[Op, Op], bool],
    site: Callable[[Op, Op, str, str], RegionSite],
    cuts: set[int],
    depth: int,
) -> list[Span]:
    """One span around each operation of the wanted classes."""
    spans = []
    for index, op in enumerate(ops):
        found = classify(op)
        if found is not None and found[0] != "loads" and wanted(found[0]):
            spans.append(Span(index, index + 1, OPERATION, site(op, op, *found), depth))
    if wanted("loads"):
        for load in load_regions(ops, same_line, cuts):
            spans.append(Span(load.start, load.stop, OPERATION, site(load.first, load.last, "loads", load.what), depth))
    return spans
