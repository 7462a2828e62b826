"""Traces made of plain Python values, for tests of everything that reads a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from warplens.trace.model import Trace
from warplens.trace.schema import COLUMNS, KINDS, ClockFit, LaunchInfo, Meta

CYCLES_PER_NS = 2


@dataclass(frozen=True)
class Span:
    """One row. `sm` None is `block % 132`; `depth` None nests it by containment in the spans before it.

    `parent` is a place in the list given to make_trace, -1 for none, or None: what the depths and times say.
    `released_by` is such a place too, or one of the negative numbers of trace/barrier_rows.py.
    """

    region: str
    start: int
    dur: int = 0
    block: int = 0
    warp: int = 0
    launch: int = 0
    kind: str = "span"
    value: float | None = None
    rank: int = 0
    device: int = 0
    sm: int | None = None
    lane: int = 0
    kernel: str = "kernel"
    depth: int | None = None
    parent: int | None = None
    cycles: int | None = None
    open: bool = False
    released_by: int = -1

    @property
    def track(self) -> tuple[int, int, int, int, int, int]:
        return self.rank, self.device, self.launch, self.block, self.warp, self.lane

    @property
    def end(self) -> int:
        return self.start + self.dur


def make_trace(spans: Iterable[Span | tuple[Any, ...]], *, meta: Meta | None = None, grid: Sequence[int] = ()) -> Trace:
    """A trace with every column. Spans are `Span`s or tuples of its first fields, in order of begin within a track."""
    rows = [span if isinstance(span, Span) else Span(*span) for span in spans]
    order = sorted(range(len(rows)), key=lambda at: rows[at].track)
    place = {at: row for row, at in enumerate(order)} | {-1: -1}
    rows = [rows[at] for at in order]
    tracks = {track: number for number, track in enumerate(sorted({row.track for row in rows}))}
    depths, parents = _nesting(rows)
    parents = [found if row.parent is None else place[row.parent] for found, row in zip(parents, rows, strict=True)]
    regions = list(dict.fromkeys(row.region for row in rows))
    kernels = list(dict.fromkeys(row.kernel for row in rows))
    values: dict[str, list[Any]] = {
        "rank": [row.rank for row in rows],
        "device": [row.device for row in rows],
        "launch": [row.launch for row in rows],
        "kernel": [kernels.index(row.kernel) for row in rows],
        "sm": [row.block % 132 if row.sm is None else row.sm for row in rows],
        "block": [row.block for row in rows],
        "warp": [row.warp for row in rows],
        "region": [regions.index(row.region) for row in rows],
        "kind": [KINDS.index(row.kind) for row in rows],
        "depth": depths,
        "parent": parents,
        "start_ns": [row.start for row in rows],
        "dur_ns": [row.dur for row in rows],
        "start_cycle": [row.start * CYCLES_PER_NS for row in rows],
        "dur_cycles": [row.dur * CYCLES_PER_NS if row.cycles is None else row.cycles for row in rows],
        "value": [row.value for row in rows],
        "track": [tracks[row.track] for row in rows],
        "lane": [row.lane for row in rows],
        "released_by": [place.get(row.released_by, row.released_by) for row in rows],
        "open": [row.open for row in rows],
    }
    names = {"kernel": kernels, "region": regions, "kind": list(KINDS)}
    table = pa.table({name: _column(kind, values[name], names.get(name)) for name, kind in COLUMNS.items()})
    return Trace(table, meta or _meta(rows, grid))


def _column(kind: pa.DataType, values: list[Any], names: list[str] | None) -> pa.Array:
    if names is None:
        return pa.array(values, kind)
    return pa.DictionaryArray.from_arrays(pa.array(values, kind.index_type), pa.array(names, pa.string()))


def _nesting(rows: list[Span]) -> tuple[list[int], list[int]]:
    depths: list[int] = []
    parents: list[int] = []
    stack: list[int] = []
    for at, row in enumerate(rows):
        while stack and not _holds(rows[stack[-1]], depths[stack[-1]], row):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        depths.append(len(stack) if row.depth is None else row.depth)
        if row.kind == "span":
            stack.append(at)
    return depths, parents


def _holds(outer: Span, depth: int, inner: Span) -> bool:
    if outer.track != inner.track:
        return False
    if inner.depth is not None:
        return depth < inner.depth
    return outer.start <= inner.start and inner.end <= outer.end and inner.start < outer.end


def _meta(rows: list[Span], grid: Sequence[int]) -> Meta:
    launches: dict[tuple[int, int], LaunchInfo] = {}
    tracks: dict[tuple[int, int], dict[tuple[int, ...], tuple[int, int]]] = {}
    for row in rows:
        key = (row.rank, row.launch)
        known = launches.get(key) or LaunchInfo(
            row.launch, row.kernel, row.rank, row.device, block=(128, 1, 1), begin_ns=row.start, end_ns=row.end
        )
        lives = tracks.setdefault(key, {})
        begin, end = lives.get(row.track, (row.start, row.end))
        lives[row.track] = min(begin, row.start), max(end, row.end)
        x, y, z = grid or (max(known.grid[0], row.block + 1), 1, 1)
        launches[key] = replace(
            known,
            grid=(x, y, z),
            begin_ns=min(known.begin_ns, row.start),
            end_ns=max(known.end_ns, row.end),
            tracks=len(lives),
        )
    for key, lives in tracks.items():
        lived = sum(end - begin for begin, end in lives.values())
        launches[key] = replace(launches[key], busy_cycles=CYCLES_PER_NS * lived, busy_ns=lived)
    clock = ClockFit(3.0, 9.0, 20.0, 1900.0, 1950.0, 1980.0, anchors=2 * len(launches), method="synthetic")
    return Meta(launches=tuple(launches.values()), clock=clock)
