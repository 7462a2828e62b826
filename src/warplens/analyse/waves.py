"""How well the grid fills the device: waves of blocks, idle SMs, and the tail in which the last blocks run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, fact_table
from warplens.analyse.code_counts import LANES
from warplens.analyse.groups import reduce_by, unique_rows
from warplens.analyse.intervals import length, most_concurrent, union
from warplens.analyse.lifetimes import Float, Int, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo
from warplens.wording import percent

_BINS = 100
_EVEN = 1.25
ENOUGH_WARPS = 16
"""Of an SM: four per scheduler hide most latencies."""


@dataclass(frozen=True)
class Waves:
    """Means over a kernel's launches; shares are of SMs × kernel time.

    `slots` is the largest number of concurrent blocks on one SM, `waves` the number of blocks over all slots. `idle` is
    the share of SM time without a block: `unused` on SMs that never got one, `ramp` before an SM's first, `gaps`
    between two, `tail` after its last. `quantised` is the part of tail and unused due to the number of blocks; the
    rest is due to uneven blocks. `thin` is the share of SM time that is missing beside that because the blocks on an SM
    have fewer warps than keep it busy: a place that is free on an SM with enough warps is no loss. `resident` is the
    mean number of blocks per SM in equal steps of the launch.
    """

    blocks: int
    sms: int
    slots: int
    waves: float
    idle: float
    unused: float
    ramp: float
    gaps: float
    tail: float
    quantised: float
    thin: float
    resident: tuple[float, ...]
    complete: bool


def waves(trace: Trace) -> PerKernel[Waves]:
    """Measure the waves and idle SMs of every kernel."""
    lives = Lifetimes.of(trace)
    answers = {}
    for kernel, launches in lives.variants.items():
        parts = [_of_launch(lives, int(at)) for at in launches]
        mean = {name: float(np.mean([getattr(part, name) for part in parts])) for name in _SHARES}
        answers[kernel] = Waves(
            blocks=round(float(np.mean([part.blocks for part in parts]))),
            sms=max(part.sms for part in parts),
            slots=max(part.slots for part in parts),
            resident=tuple(np.mean([part.resident for part in parts], axis=0).tolist()),
            complete=all(part.complete for part in parts),
            **mean,
        )
    return PerKernel(answers)


_SHARES = ("waves", "idle", "unused", "ramp", "gaps", "tail", "quantised", "thin")


def _of_launch(lives: Lifetimes, at: int) -> Waves:
    launch = lives.launches[at]
    blocks = lives.all_blocks_of(at)
    begin, end = blocks.begin, blocks.end
    (sms,), _, place = unique_rows(blocks.sm)
    sm_ns = float(launch.duration_ns * launch.sms)
    axis = place * (launch.duration_ns + 1)
    busy_begin, busy_end = union(axis + begin - launch.begin_ns, axis + end - launch.begin_ns)
    busy = length(busy_begin, busy_end)
    first = reduce_by(np.minimum, begin, place, len(sms))
    last = reduce_by(np.maximum, end, place, len(sms))
    unused = (launch.sms - len(sms)) / launch.sms
    ramp = float((first - launch.begin_ns).sum() / sm_ns)
    tail = float((launch.end_ns - last).sum() / sm_ns)
    slots = max(int(most_concurrent(begin, end, place, len(sms)).max()), 1)
    return Waves(
        blocks=len(blocks),
        sms=launch.sms,
        slots=slots,
        waves=len(blocks) / (launch.sms * slots),
        idle=1 - busy / sm_ns,
        unused=unused,
        ramp=ramp,
        gaps=max(1 - busy / sm_ns - unused - ramp - tail, 0.0),
        tail=tail,
        quantised=_quantised(len(blocks), launch.sms, tail, unused, end - begin),
        thin=_thin(begin, end, place, _warps_per_block(launch.info), slots) / sm_ns,
        resident=_resident(begin - launch.begin_ns, end - launch.begin_ns, launch.duration_ns, launch.sms),
        complete=launch.complete,
    )


def _quantised(blocks: int, sms: int, tail: float, unused: float, lasted: Int) -> float:
    """The loss of equal blocks that do not divide evenly among the SMs, at most the measured loss."""
    per_sm = blocks / sms
    model = 1 - per_sm / math.ceil(per_sm)
    even = float(np.percentile(lasted, 95)) <= _EVEN * max(float(np.median(lasted)), 1.0)
    return tail + unused if even and model > 0 else min(tail + unused, model)


def _warps_per_block(info: LaunchInfo | None) -> int:
    return max(math.ceil(math.prod(info.block) / LANES), 1) if info else 1


def _thin(begin: Int, end: Int, place: Int, warps: int, slots: int) -> float:
    """SM time with blocks that is missing because they have too few warps, relative to an SM with all of its blocks."""
    times, delta = np.concatenate([begin, end]), np.repeat([1, -1], len(begin))
    where = np.concatenate([place, place])
    order = np.lexsort((-delta, times, where))
    held = np.cumsum(delta[order])[:-1]
    missing = 1 - np.minimum(held * warps / min(ENOUGH_WARPS, slots * warps), 1.0)
    same = (where[order][1:] == where[order][:-1]) & (held > 0)
    return float((np.diff(times[order]) * missing)[same].sum())


def _resident(begin: Int, end: Int, duration_ns: int, sms: int) -> tuple[float, ...]:
    """The mean number of blocks per SM in equal steps of time."""
    step = duration_ns / _BINS
    edges = np.arange(_BINS + 1) * step

    def until(times: Int) -> Float:
        ordered = np.sort(times)
        total = np.append(0, np.cumsum(ordered))
        passed = np.searchsorted(ordered, edges)
        return np.asarray(passed * edges - total[passed])

    return tuple((np.diff(until(begin) - until(end)) / step / sms).tolist())


def grid_evidence(one: Waves) -> dict[str, float | int | str]:
    """The numbers behind a statement about the grid."""
    return {
        "blocks": one.blocks,
        "sms": one.sms,
        "blocks_per_sm": one.slots,
        "waves": round(one.waves, 3),
        "sm_time_idle": one.idle,
        "tail": one.tail,
        "unused": one.unused,
    }


def waves_table(kernel: str, one: Waves) -> AnswerTable:
    """How many waves the grid takes, and when SMs had no block."""
    return fact_table(
        f"{kernel}: waves",
        [
            ("blocks", f"{one.blocks:,} on {one.sms} SMs, {one.slots} at once on each"),
            ("waves", f"{one.waves:.2f}"),
            ("SM time without a block", percent(one.idle)),
            ("  on SMs never used", percent(one.unused)),
            ("  before the first block", percent(one.ramp)),
            ("  between blocks", percent(one.gaps)),
            ("  after the last block", percent(one.tail)),
            ("  due to the number of blocks", percent(one.quantised)),
        ],
    )


WAVES = Analysis("waves", run=lambda ask: waves(ask.trace), table=waves_table)
