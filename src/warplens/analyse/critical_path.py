"""The critical path of a launch: which regions its end depended on, and what speeding one up would gain.

The path runs back from the last record: along the warp's own spans, through a wait to what ended it (the arrival that
released it, where barriers were recorded, or the issue of the copy; else the span that ended with it), from a block's
begin to the previous block on its SM, and so on to the launch. It covers the kernel's time without gaps, so
the shares of its parts sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, region_table
from warplens.analyse.chains import BlockPaths, Chains, PathCells
from warplens.analyse.kernel_lives import each_variant
from warplens.analyse.lifetimes import Array, Float, Int, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.producers import Matches, match_waits
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.statistics import region_named
from warplens.trace.model import Trace
from warplens.wording import duration, percent

FASTER = (0.1, 0.25, 0.5, 1.0)
ASSUMPTIONS = (
    "Every instance of the region gets faster by the same share and nothing else changes; blocks keep the SM and the "
    "order they had; a warp is delayed only by marked waits and is never faster than its own work; memory, power and "
    "clocks do not react."
)
_MAX_REGIONS = 24
_MAX_STEPS = 2000


@dataclass(frozen=True)
class PathRegion:
    """One region on the critical path.

    `share` is its part of the kernel's time. `slack_ns` is how much longer all its instances could take before the
    kernel took longer (0 on the path). `gain` is the kernel's gain if the region were faster by the shares in `FASTER`.
    """

    region: str
    purpose: str
    share: float
    ns: float
    slack_ns: float
    gain: Mapping[float, float]

    def at(self, faster: float) -> float:
        """The gain for any speedup, interpolated between the computed ones."""
        return float(np.interp(faster, [0.0, *self.gain], [0.0, *self.gain.values()]))


@dataclass(frozen=True)
class PathStep:
    """A part of the path on one warp."""

    sm: int
    block: int
    warp: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class CriticalPath:
    """Means over a kernel's launches, in ns.

    `length_ns` is the sum of the regions, of `unmarked_ns` (outside every region), of `between_ns` (from a block's end
    to the next block's first record) and of `launch_ns` (from the launch to the first record, and after the last).
    `steps` are those of the longest launch.
    """

    length_ns: float
    kernel_ns: float
    longest_track_ns: float
    regions: tuple[PathRegion, ...]
    unmarked_ns: float
    between_ns: float
    launch_ns: float
    launch: int
    blocks: tuple[int, ...]
    steps: tuple[PathStep, ...]
    assumptions: str = ASSUMPTIONS

    def __getitem__(self, region: str) -> PathRegion:
        return region_named(self.regions, region)


def critical_path(trace: Trace, *, waits: str | None = None, matches: Matches | None = None) -> PerKernel[CriticalPath]:
    """The critical path of every kernel; `waits` is a regular expression for regions that only wait."""
    lives = Lifetimes.of(trace)
    kinds = lives.purposes(waits)
    found = (matches or match_waits(lives, kinds)).of_each_variant(lives)
    return PerKernel({label: _KernelPath(own, kinds, found[label]).answer() for label, own in each_variant(lives)})


class _KernelPath:
    """Computes the critical path of one variant from matrices of block × region and track × region."""

    def __init__(self, lives: Lifetimes, kinds: list[Purpose], matches: Matches) -> None:
        self.lives, self.kinds = lives, kinds
        self.paths, self.chains = BlockPaths(lives, matches), Chains(lives)
        self.launches = range(len(lives.launches))
        cycles = lives.blocks.end - lives.blocks.begin
        self.lasted = (lives.blocks.end_ns - lives.blocks.begin_ns).astype(np.float64)
        self.ns_per_cycle = self.lasted / np.maximum(cycles, 1)
        self.codes = self._regions()
        self.column = np.full(len(lives.regions), len(self.codes), np.int64)
        self.column[self.codes] = np.arange(len(self.codes))

    def _regions(self) -> Int:
        """The regions to report: ordered by time on the blocks' paths, then by total time."""
        many, cells, paths = len(self.lives.regions), self.lives.cells, self.paths.on_path
        anywhere = np.bincount(cells.region, weights=cells.exclusive, minlength=many)
        on_path = np.bincount(paths.region, weights=paths.cycles, minlength=many)
        order = np.lexsort((-anywhere, -on_path))
        return order[anywhere[order] > 0][:_MAX_REGIONS]

    def _matrix(self, group: Array, groups: int, cells: PathCells) -> Float:
        width = len(self.codes) + 1
        key = group[cells.track] * width + self.column[cells.region]
        summed: Float = np.bincount(key, weights=cells.cycles, minlength=groups * width).astype(np.float64)
        return summed.reshape(groups, width)

    def answer(self) -> CriticalPath:
        lives = self.lives
        on_path = self._matrix(lives.block, len(lives.blocks), self.paths.on_path) * self.ns_per_cycle[:, None]
        spent = self._spent()
        ends = [self._last_block(at) for at in self.launches]
        chains = [self.chains.to(end) for end in ends]
        per_region = np.array([on_path[chain].sum(axis=0) for chain in chains])
        inside = np.array([self.lasted[chain].sum() for chain in chains])
        first = np.array([lives.blocks.begin_ns[chain[0]] for chain in chains], np.float64)
        last = lives.blocks.end_ns[ends].astype(np.float64)
        launch_durations = np.array([lives.launches[at].duration_ns for at in self.launches], np.float64)
        gains = self._gains(on_path, spent, launch_durations)
        slack = self._slack(on_path, spent)
        mean = per_region.mean(axis=0)
        longest = int(np.argmax(launch_durations))
        regions = tuple(
            PathRegion(
                lives.regions[code],
                self.kinds[code].value,
                share=float(mean[at] / launch_durations.mean()),
                ns=float(mean[at]),
                slack_ns=float(slack[at]),
                gain=dict(zip(FASTER, gains[:, at].tolist(), strict=True)),
            )
            for at, code in enumerate(self.codes.tolist())
        )
        return CriticalPath(
            length_ns=float(launch_durations.mean()),
            kernel_ns=float(launch_durations.mean()),
            longest_track_ns=self._longest_track(),
            regions=tuple(sorted(regions, key=lambda region: -region.share)),
            unmarked_ns=float((inside - per_region.sum(axis=1)).mean() + mean[-1]),
            between_ns=float((last - first - inside).mean()),
            launch_ns=float((launch_durations - (last - first)).mean()),
            launch=lives.launches[self.launches[longest]].number,
            blocks=tuple(lives.blocks.number[chains[longest]].tolist()),
            steps=self._steps(chains[longest]),
        )

    def _last_block(self, at: int) -> int:
        of = self.lives.blocks_of(at)
        return int(of.start) + int(self.lives.blocks.end_ns[of].argmax())

    def _longest_track(self) -> float:
        return float((self.lives.finish_ns - self.lives.begin_ns).max(initial=0))

    def _spent(self) -> Float:
        """Cycles of each track in each region, less the time that producers made it wait."""
        lives, wait = self.lives, self.paths.wait
        spent = PathCells(lives.cells.track, lives.cells.region, lives.cells.own.astype(np.float64))
        if len(wait):
            waited = np.minimum(self.paths.resumed, lives.end[wait]) - lives.start[wait]
            less = np.minimum(lives.own[wait], np.maximum(waited, 0))
            spent = PathCells(
                np.concatenate((spent.track, lives.track_of(wait))),
                np.concatenate((spent.region, lives.region[wait])),
                np.concatenate((spent.cycles, -less)),
            )
        return self._matrix(np.arange(len(lives)), len(lives), spent)

    def _gains(self, on_path: Float, spent: Float, launch_durations: Float) -> Float:
        """The kernel's gain from each region at each speedup: rows are `FASTER`, columns are regions.

        A block gets shorter by the region's part of its path, but never shorter than its busiest warp needs alone. A
        chain of blocks gets shorter by the sum, and the kernel ends with its latest chain.
        """
        lives = self.lives
        waits = np.array([self.kinds[code] is Purpose.WAIT for code in self.codes], bool)
        out = np.zeros((len(FASTER), len(self.codes)))
        floor_now = self.paths.floor[:, None]
        for row, faster in enumerate(FASTER):
            floor = self.paths.longest(floor_now - faster * spent[:, :-1]) * self.ns_per_cycle[:, None]
            shrunk = np.maximum(self.lasted[:, None] - faster * on_path[:, :-1], floor)
            saved = self.chains.along(np.maximum(self.lasted[:, None] - shrunk, 0.0))
            ends = lives.blocks.end_ns[:, None] - saved
            for launch in self.launches:
                of = lives.blocks_of(launch)
                out[row] += lives.blocks.end_ns[of].max() - ends[of].max(axis=0)
        out /= launch_durations.sum()
        out[:, waits] = 0.0
        return out

    def _slack(self, on_path: Float, spent: Float) -> Float:
        """The least time by which an instance of each region could end later without delaying the kernel's end."""
        lives = self.lives
        last = np.zeros(len(lives.launches))
        for at in self.launches:
            last[at] = lives.blocks.end_ns[lives.blocks_of(at)].max()
        behind = last[lives.blocks.launch] - self.chains.latest()
        present = self.paths.longest(spent[:, :-1]) > 0
        need = (
            self.paths.longest(np.where(spent[:, :-1] > 0, self.paths.floor[:, None], 0)) * self.ns_per_cycle[:, None]
        )
        spare = np.where(on_path[:, :-1] > 0, 0.0, np.maximum(self.lasted[:, None] - need, 0.0)) + behind[:, None]
        slack = np.where(present, spare, np.inf).min(axis=0, initial=np.inf)
        return np.where(np.isfinite(slack), slack, 0.0)

    def _steps(self, chain: list[int]) -> tuple[PathStep, ...]:
        """The path's parts in time order; only the longest where there are too many."""
        lives, pieces = self.lives, self.paths.pieces
        mine = np.flatnonzero(np.isin(lives.block[pieces.track], chain) & (pieces.end > pieces.begin))
        if len(mine) > _MAX_STEPS:
            mine = mine[np.argsort(pieces.begin[mine] - pieces.end[mine], kind="stable")[:_MAX_STEPS]]
        track = pieces.track[mine]
        block = lives.block[track]
        rate, origin = self.ns_per_cycle[block], lives.blocks.begin[block]
        start = lives.blocks.begin_ns[block] + (pieces.begin[mine] - origin) * rate
        end = lives.blocks.begin_ns[block] + (pieces.end[mine] - origin) * rate
        rows = zip(lives.sm[track], lives.blocks.number[block], lives.warp[track], start, end, strict=True)
        return tuple(
            sorted((PathStep(*(round(float(x)) for x in row)) for row in rows), key=lambda step: step.start_ns)
        )


def path_table(kernel: str, one: CriticalPath) -> AnswerTable:
    """Each region's time on the critical path, its slack, and the gain from making it faster."""

    def gain(faster: float) -> tuple[str, Callable[[PathRegion], str]]:
        name = "free" if faster == 1 else f"{round(100 * faster)} % faster"
        return f"if {name}", lambda row: percent(row.gain[faster])

    return region_table(
        f"{kernel}: critical path {duration(one.length_ns)}; outside regions {duration(one.unmarked_ns)}, "
        f"between blocks {duration(one.between_ns)}, launch {duration(one.launch_ns)}",
        one.regions,
        ("on path", lambda row: duration(row.ns)),
        ("share", lambda row: percent(row.share)),
        ("slack", lambda row: duration(row.slack_ns)),
        *(gain(faster) for faster in (one.regions[0].gain if one.regions else ())),
    )


CRITICAL_PATH = Analysis(
    "path", run=lambda ask: critical_path(ask.trace, waits=ask.waits, matches=ask.matches), table=path_table
)
