"""The SM clock during a kernel, and whether times in ns are accurate enough to compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, fact_table
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.trace.model import Trace
from warplens.wording import duration, percent

_STEPS = 20
_DROP = 0.03
_MIN_SPAN_NS = 64


@dataclass(frozen=True)
class SmClock:
    """The SM clock during a kernel, in MHz over equal steps of its launches, and the error of times in ns.

    `lost` is the share that the kernel would save at the highest clock seen, if all its time scaled with the clock.
    `mhz_error` is the error of these rates: what differs by less is not a change of the clock.
    `blurred` are regions whose median duration is below the clock alignment error: their order across SMs is unknown.
    """

    mhz: tuple[float, ...]
    mhz_min: float
    mhz_mean: float
    mhz_max: float
    lost: float
    error_ns: float
    kernel_ns: float
    blurred: tuple[str, ...]
    measured: bool
    mhz_error: float = 0.0
    limit_mhz: float = 0.0
    """The device's highest clock, 0 if unknown."""

    @property
    def plausible(self) -> bool:
        """Whether no rate is above what the device can run at; if one is, the rates are too uncertain to compare."""
        return not self.limit_mhz or self.mhz_max <= 1.005 * self.limit_mhz

    @property
    def dropped(self) -> bool:
        """Whether the clock became slower by more than the error of its rates."""
        fall = self.mhz_max - self.mhz_min
        return self.measured and self.plausible and fall > max(_DROP * self.mhz_max, 2 * self.mhz_error)


def sm_clock(trace: Trace) -> PerKernel[SmClock]:
    """Measure the SM clock of every kernel."""
    lives = Lifetimes.of(trace)
    fit = trace.meta.clock
    error = placement_error(trace)
    names = {kernel: at for at, kernel in enumerate(lives.variants)}
    size = len(names) * _STEPS
    cycles, time = np.zeros((len(names), _STEPS)), np.zeros((len(names), _STEPS))
    of_launch = np.array([names[each.variant] for each in lives.launches], np.int64)
    for first, last, (start, ns) in trace.blocks("start_ns", "dur_ns"):
        rows = slice(first, last)
        top = np.flatnonzero(lives.measured[rows] & (lives.parent[rows] < 0) & (ns >= _MIN_SPAN_NS))
        launch = lives.launch[np.searchsorted(lives.first, first + top, side="right") - 1]
        middle = start[top] + ns[top] // 2
        step = np.clip((middle - lives.launch_begin[launch]) * _STEPS // lives.launch_ns[launch], 0, _STEPS - 1)
        key = of_launch[launch] * _STEPS + step
        cycles.reshape(-1)[:] += np.bincount(key, weights=lives.duration[rows][top], minlength=size)
        time.reshape(-1)[:] += np.bincount(key, weights=ns[top], minlength=size)
    medians = _medians(lives, trace)
    answers = {}
    for kernel, at in names.items():
        seen = time[at] > 0
        mhz = 1000 * cycles[at][seen] / time[at][seen]
        low, high = (float(mhz.min()), float(mhz.max())) if seen.any() else (fit.mhz_min, fit.mhz_max)
        mean = float(1000 * cycles[at].sum() / time[at].sum()) if seen.any() else fit.mhz_mean
        best = max(high, fit.mhz_max)
        answers[kernel] = SmClock(
            mhz=tuple(mhz.tolist()),
            mhz_min=low,
            mhz_mean=mean,
            mhz_max=best,
            lost=max(1 - mean / best, 0.0) if best - mean > fit.mhz_error else 0.0,
            mhz_error=fit.mhz_error,
            error_ns=error,
            kernel_ns=lives.kernel_ns(kernel),
            blurred=tuple(name for name, median in medians.get(kernel, {}).items() if median < error),
            measured=fit.method not in ("none", "nominal", "unknown"),
            limit_mhz=_limit(lives, kernel),
        )
    return PerKernel(answers)


def _limit(lives: Lifetimes, kernel: str) -> float:
    info = lives.launches[int(lives.launches_of(kernel)[0])].info
    device = lives.trace.meta.device(info.rank, info.device) if info else {}
    return float(device.get("clock_mhz", 0.0) or 0.0)


def placement_error(trace: Trace) -> float:
    """The error of times in this trace, in ns: the 99th percentile of the clock fit's residual."""
    return float(trace.meta.clock.residual_p99_ns)


def _medians(lives: Lifetimes, trace: Trace) -> dict[str, dict[str, float]]:
    """The median duration in ns of each region of each kernel, from a sample."""
    step = max(int(np.count_nonzero(lives.measured)) // 500_000, 1)
    kernels, seen = list(lives.variants), 0
    codes, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first, last, (block,) in trace.blocks("dur_ns"):
        here = np.flatnonzero(lives.measured[first:last])
        chosen = here[-seen % step :: step]
        seen += len(here)
        of_row = np.searchsorted(lives.first, first + chosen, side="right") - 1
        codes.append(lives.variant[of_row] * len(lives.regions) + lives.region[first + chosen])
        times.append(block[chosen])
    code, ns = np.concatenate(codes), np.concatenate(times)
    order = np.argsort(code, kind="stable")
    keys, starts = np.unique(code[order], return_index=True)
    out: dict[str, dict[str, float]] = {}
    for key, part in zip(keys.tolist(), np.split(ns[order], starts[1:])[: len(keys)], strict=True):
        kernel, region = kernels[key // len(lives.regions)], lives.regions[key % len(lives.regions)]
        out.setdefault(kernel, {})[region] = float(np.median(part))
    return out


def too_small(gain: float, kernel_ns: float, error_ns: float, cost: float | None) -> str:
    """Why a gain is not reliable: it is below the clock's error or the profiling overhead; empty where it is."""
    if gain * kernel_ns < error_ns:
        return (
            f"its gain of {duration(gain * kernel_ns)} is within the clock alignment error of {duration(error_ns)} "
            f"({percent(error_ns / max(kernel_ns, 1.0))} of the kernel)"
        )
    if cost is not None and gain < cost:
        return f"its gain of {percent(gain)} is below the profiling overhead of {percent(cost)}"
    return ""


def clock_table(kernel: str, one: SmClock) -> AnswerTable:
    """The range of the SM clock, and the error of times."""
    return fact_table(
        f"{kernel}: clock",
        [
            (
                "MHz, lowest to highest",
                f"{one.mhz_min:,.0f} to {one.mhz_max:,.0f} (mean {one.mhz_mean:,.0f}, error {one.mhz_error:,.1f})",
            ),
            ("error of times", f"{duration(one.error_ns)} of {duration(one.kernel_ns)}"),
            ("regions shorter than that", ", ".join(one.blurred[:6]) or "none"),
        ],
    )


SM_CLOCK = Analysis("clock", run=lambda ask: sm_clock(ask.trace), table=clock_table)
