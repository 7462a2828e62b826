"""Which regions ran at the same time on an SM, and which time nothing else hides."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from warplens import native
from warplens.analyse.analysis import Analysis, AnswerTable
from warplens.analyse.intervals import MAX_SETS, TAG_BITS, concurrency, union
from warplens.analyse.kernel_lives import each_variant
from warplens.analyse.lifetimes import Float, Int, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.pipeline import Pipeline, pipeline_depth
from warplens.analyse.region_purpose import Purpose
from warplens.trace.arrays import run_starts
from warplens.trace.model import Trace
from warplens.wording import percent

REST = "(other regions)"


@dataclass(frozen=True)
class RegionOverlap:
    """One region on the SMs of a kernel; shares are of SM time (SMs that ran blocks × kernel time).

    `active`: at least one warp is in it, and in none of its inner regions. `alone`: no other region is active.
    `exposed`: no other region is active except waits, which hide nothing.
    """

    region: str
    purpose: str
    active: float
    alone: float
    exposed: float


@dataclass(frozen=True)
class Overlap:
    """`together[i][j]` is the share of SM time in which regions i and j were both active; the diagonal is `active`.

    The other values are shares of SM time too: `waiting` with every marked warp of the SM waiting, `memory_exposed`
    with memory regions active but no work, `work_exposed` with work but no memory regions, `both` with both.
    `hidden` is the share of the memory regions' time that work overlaps.
    """

    regions: tuple[RegionOverlap, ...]
    together: tuple[tuple[float, ...], ...]
    waiting: float
    memory_exposed: float
    work_exposed: float
    hidden: float
    both: float
    pipeline: Pipeline | None

    def __getitem__(self, region: str) -> RegionOverlap:
        return next(one for one in self.regions if one.region == region)


def overlap(trace: Trace, *, waits: str | None = None) -> PerKernel[Overlap]:
    """Measure the overlap of regions in every kernel, exact to the cycle: the warps of an SM share its clock."""
    lives = Lifetimes.of(trace)
    kinds = lives.purposes(waits)
    return PerKernel({label: _of_variant(own, label, kinds) for label, own in each_variant(lives)})


class _Axis:
    """The begin and end of each row on one axis, on which the (launch, SM) places follow one another."""

    def __init__(self, lives: Lifetimes) -> None:
        places = int(lives.place.max(initial=-1)) + 1
        begin = np.full(places, np.iinfo(np.int64).max)
        end = np.zeros(places, np.int64)
        np.minimum.at(begin, lives.place, lives.begin)
        np.maximum.at(end, lives.place, lives.finish)
        width = int((end - begin).max(initial=0)) + 2
        shift = (np.arange(places) * width - begin)[lives.place]
        # 32-bit values sort twice as fast; each still needs room for its tag.
        small = places * width < 1 << (32 - TAG_BITS)
        self.start = (lives.start + lives.spread(shift)).astype(np.uint32 if small else np.int64)
        self.end = self.start + lives.duration.astype(self.start.dtype)


def _of_variant(lives: Lifetimes, kernel: str, kinds: list[Purpose]) -> Overlap:
    """`lives` are those of the variant."""
    busy = np.bincount(lives.cells.region, lives.cells.exclusive, len(lives.regions)).astype(np.float64)
    order = np.argsort(-busy, kind="stable")
    shown = order[busy[order] > 0].tolist()
    groups = [[code] for code in shown[: MAX_SETS - 3]]
    rest = shown[MAX_SETS - 3 :]
    # The remaining regions are grouped by purpose, so that exposed time stays exact for any number of regions.
    for purpose in ({Purpose.WAIT}, {Purpose.MEMORY}, {Purpose.WORK, Purpose.OTHER}):
        codes = [code for code in rest if kinds[code] in purpose]
        if codes:
            groups.append(codes)
    group_of = np.full(len(lives.regions), -1, np.int64)
    for number, codes in enumerate(groups):
        group_of[codes] = number
    measure = _lasted(lives, kernel, group_of, len(groups))
    with ThreadPoolExecutor(1) as pool:
        # C code runs beside the interpreter; what it reads is in memory already.
        running = pool.submit(measure)
        pipeline = pipeline_depth(lives, kinds)
        lasted = running.result()
    sm_cycles = _sm_cycles(lives)
    names = [lives.regions[codes[0]] if len(codes) == 1 else REST for codes in groups]
    purpose_of = [kinds[codes[0]] for codes in groups]
    return _answer(lasted, names, purpose_of, sm_cycles, pipeline)


def _lasted(lives: Lifetimes, kernel: str, group_of: Int, groups: int) -> Callable[[], Float]:
    """A function that measures the cycles in which exactly the groups of each bit mask were active."""
    library = native.load()
    if library is None:
        lasted = _lasted_by_sorting(lives.whole, kernel, group_of, groups)
        return lambda: lasted
    order = np.argsort(lives.place, kind="stable")
    tracks = lives.tracks[order]
    places = np.append(run_starts(lives.place[order]), len(tracks)).astype(np.int64)
    arrays = [
        *(lives.start, lives.duration, lives.region, lives.parent, lives.is_span, lives.detached),
        lives.row_bounds,
        group_of.astype(np.int32),
    ]
    arrays = [np.ascontiguousarray(array) for array in arrays]
    columns = (ctypes.c_void_p * len(arrays))(*map(native.address, arrays))
    ends = ctypes.c_int64(len(places) - 1), ctypes.c_int64(groups)

    def measure() -> Float:
        found = np.zeros(1 << groups)
        if library.wl_overlap(columns, *map(native.pointer, (tracks, places)), *ends, native.pointer(found)):
            raise MemoryError("no memory left to measure the overlap of regions")
        assert arrays  # `columns` has their addresses only
        return found

    return measure


def _lasted_by_sorting(lives: Lifetimes, kernel: str, group_of: Int, groups: int) -> Float:
    """The same with numpy: the union of the intervals of each group, and how long the unions coincide."""
    rows, axis = lives.spans_of(kernel), _Axis(lives)
    inner = lives.inner[lives.tracks_of(kernel)[lives.of_row[lives.inner]]]
    own = _parts(group_of[lives.region[rows]], groups, rows)
    children = _parts(group_of[lives.region[lives.parent[inner]]], groups, inner)
    # A child's begin interrupts its parent's exclusive time and its end resumes it.
    sets = [
        union(np.concatenate([axis.start[mine], axis.end[child]]), np.concatenate([axis.end[mine], axis.start[child]]))
        for mine, child in zip(own, children, strict=True)
    ]
    return concurrency(sets)


def _parts(group: Int, groups: int, rows: Int | slice) -> list[Int]:
    """The rows of each group; rows of group -1 are left out."""
    order = np.argsort(group.astype(np.int8), kind="stable")
    bounds = np.cumsum(np.bincount(group + 1, minlength=groups + 1))
    chosen = order if isinstance(rows, slice) else rows[order]
    return [chosen[bounds[number] : bounds[number + 1]] for number in range(groups)]


def _sm_cycles(lives: Lifetimes) -> float:
    """SM time of a variant in cycles: the durations of its launches times the SMs that ran its blocks."""
    places = np.bincount(lives.place_launch, minlength=len(lives.launches))
    ns = sum(float(places[at]) * launch.duration_ns for at, launch in enumerate(lives.launches))
    return float(ns * lives.cycles_per_ns)


def _answer(
    lasted: Float, names: list[str], kinds: list[Purpose], sm_cycles: float, pipeline: Pipeline | None
) -> Overlap:
    n = len(names)
    mask: Int = np.arange(len(lasted))
    has = [(mask >> bit) & 1 == 1 for bit in range(n)]
    waits = _any(has, [kind is Purpose.WAIT for kind in kinds], mask)
    memory = _any(has, [kind is Purpose.MEMORY for kind in kinds], mask)
    work = _any(has, [kind in (Purpose.WORK, Purpose.OTHER) for kind in kinds], mask)
    regions = []
    for bit in range(n):
        others = _any(has, [i != bit and kinds[i] is not Purpose.WAIT for i in range(n)], mask)
        regions.append(
            RegionOverlap(
                names[bit],
                kinds[bit].value,
                active=float(lasted[has[bit]].sum() / sm_cycles),
                alone=float(lasted[1 << bit] / sm_cycles),
                exposed=float(lasted[has[bit] & ~others].sum() / sm_cycles),
            )
        )
    together = tuple(tuple(float(lasted[has[i] & has[j]].sum() / sm_cycles) for j in range(n)) for i in range(n))
    moving = float(lasted[memory].sum())
    return Overlap(
        regions=tuple(regions),
        together=together,
        waiting=float(lasted[waits & ~memory & ~work].sum() / sm_cycles),
        memory_exposed=float(lasted[memory & ~work].sum() / sm_cycles),
        work_exposed=float(lasted[work & ~memory].sum() / sm_cycles),
        hidden=float(lasted[memory & work].sum() / moving) if moving else 0.0,
        both=float(lasted[memory & work].sum() / sm_cycles),
        pipeline=pipeline,
    )


def _any(
    has: list[np.ndarray[tuple[int], np.dtype[np.bool_]]], chosen: list[bool], mask: Int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    out = np.zeros(len(mask), bool)
    for bit, take in enumerate(chosen):
        if take:
            out |= has[bit]
    return out


def overlap_table(kernel: str, one: Overlap) -> AnswerTable:
    """Each region's activity, and how much of it coincides with each of the first eight regions."""
    title = (
        f"{kernel}: {percent(one.waiting)} of SM time all warps wait, {percent(one.memory_exposed)} memory without "
        f"work, {percent(one.work_exposed)} work without memory; {percent(one.hidden)} of memory time is hidden by work"
    )
    if one.pipeline:
        title += f"; {one.pipeline.mean:.1f} loads in flight (p99 {one.pipeline.most:.1f})"
    shown = [region.region for region in one.regions[:8]]
    rows = tuple(
        (
            *(region.region, region.purpose),
            *(percent(share) for share in (region.active, region.alone, region.exposed)),
            *(percent(share) for share in together[: len(shown)]),
        )
        for region, together in zip(one.regions, one.together, strict=True)
    )
    columns = ("region", "purpose", "active", "alone", "exposed", *(f"with {name}" for name in shown))
    return AnswerTable(title, columns, rows)


OVERLAP = Analysis("overlap", run=lambda ask: overlap(ask.trace, waits=ask.waits), table=overlap_table)
