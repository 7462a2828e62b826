"""The sections of a report: results of analyses as rows and texts for the template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from warplens.analyse.analysis import Answers
from warplens.analyse.critical_path import CRITICAL_PATH
from warplens.analyse.heatmap import by_region
from warplens.analyse.histogram import Histogram
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.measured_slopes import slope_text, slopes_of
from warplens.analyse.overlap import OVERLAP
from warplens.analyse.sample_share import sample_line
from warplens.analyse.slowdown import slowdown_of
from warplens.analyse.statistics import RegionStatistics, Statistics
from warplens.analyse.timeline import ThinnedTrace
from warplens.analyse.trace_quality import clock_line, rank_line, time_line, warnings_of
from warplens.record.cost_keys import SLOWDOWN, SLOWDOWN_MEASURED, TIMED_PLAIN, TIMED_RECORDED
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankClocks
from warplens.trace.schema import LaunchInfo, Meta
from warplens.view.heat_maps import ranked
from warplens.view.palette import ink, rgb
from warplens.wording import duration, first_of, integer, percent, plural

_DURATIONS = ("mean", "std", "p50", "p95", "p99", "min", "max", "total")
_MATRIX_ROWS = 64
_MATRIX_COLUMNS = 24
_SHOWN_SLOWDOWNS = 4
_RAMP = ("#00224E", "#4C556C", "#8D8979", "#D4C35F", "#FEE838")


@dataclass(frozen=True)
class Fact:
    """One card of the summary; `tone` is `good`, `warn` or empty."""

    name: str
    text: str
    more: str = ""
    tone: str = ""


def summary(trace: Trace) -> list[Fact]:
    """The cards of the summary: what was measured, for how long, and how accurately."""
    meta, losses = trace.meta, trace.meta.losses
    launches = meta.launches
    devices = [str(device.get("name", "unknown")) for device in meta.distinct_devices]
    sms = [f"{device['sm_count']} SMs" for device in meta.distinct_devices if device.get("sm_count")]
    capability = [f"compute capability {d['capability']}" for d in meta.distinct_devices if d.get("capability")]
    clocks = {info.clock for info in launches} - {"gpu"}
    simulated = {"simulated": "simulated clock", "cpu": "CPU time, not GPU time"}
    kernels = trace.kernels
    lengths = [info.end_ns - info.begin_ns for info in launches]
    lost = plural(losses.records_lost, "record") if losses.records_lost else "nothing"
    clean = losses.clean
    return [
        Fact(
            "kernel" if len(kernels) == 1 else f"{len(kernels)} kernels",
            first_of(kernels) or "none",
            _shape(launches),
        ),
        Fact(
            "device",
            ", ".join(devices) or "unknown",
            " · ".join([*sms[:1], *capability[:1], *(simulated[c] for c in clocks)]),
        ),
        Fact("time", duration(max(lengths)) if lengths else "unknown", _time_note(lengths)),
        Fact(
            "spans",
            f"{len(trace):,}",
            ", ".join([*[plural(losses.tracks, "warp")] * bool(losses.tracks), plural(len(trace.regions), "region")]),
        ),
        Fact(
            "lost",
            lost if losses.records_lost or clean else "see below",
            _records_kept(trace),
            "good" if clean else "warn",
        ),
        Fact("clock error", *_clock_error(trace)),
        *_rank_clocks(trace),
        Fact("cost of profiling", *_cost(trace)),
    ]


def _shape(launches: Sequence[LaunchInfo]) -> str:
    if not launches:
        return ""
    shapes = {(info.grid, info.block) for info in launches}
    grid, block = ("×".join(map(str, sizes)) for sizes in (launches[0].grid, launches[0].block))
    shape = f"grid {grid}, block {block}" if len(shapes) == 1 else "several grids or blocks"
    return shape + (f"; {len(launches):,} launches" if len(launches) > 1 else "")


def _time_note(lengths: Sequence[int]) -> str:
    if len(lengths) < 2:
        return "from the first warp's start to the last warp's exit"
    return f"the longest of {len(lengths):,} launches; {duration(sum(lengths))} in total"


def _records_kept(trace: Trace) -> str:
    losses = trace.meta.losses
    return f"{losses.records_kept:,} of {losses.records_written:,} records kept" if losses.records_written else ""


def _clock_error(trace: Trace) -> tuple[str, str]:
    clock = trace.meta.clock
    if not clock.anchors:
        return "unknown", clock_line(trace)
    rates = f"{clock.mhz_min:,.0f} to {clock.mhz_max:,.0f} MHz"
    return f"± {duration(clock.error_p99_ns)}", f"p99; at most {duration(clock.error_max_ns)}; clock {rates}"


def _rank_clocks(trace: Trace) -> list[Fact]:
    """The bound on the times of two ranks, where there are several."""
    said = rank_line(trace)
    if not said:
        return []
    worst = RankClocks.of(trace.meta).worst_ns
    return [Fact("between ranks", f"± {duration(worst)}" if worst else "unknown", said)]


def _cost(trace: Trace) -> tuple[str, str]:
    """The slowdown of each kernel or variant where it is known, and all other costs."""
    costs: dict[str, float] = dict(trace.meta.cost)
    for info in trace.meta.launches:
        for name, value in info.cost.items():
            costs[name] = max(costs.get(name, -math.inf), float(value))
    if not costs:
        return "not measured", ""
    whole_trace = trace.meta.cost.get(SLOWDOWN)
    for key in (SLOWDOWN, SLOWDOWN_MEASURED, TIMED_PLAIN, TIMED_RECORDED):
        costs.pop(key, None)
    rest = [_measured(name, value) for name, value in costs.items()]
    found = [
        (one.label, slowdown) for one in kernel_variants(trace.meta.launches) if (slowdown := slowdown_of(one.launches))
    ]
    if not found:
        return ("not measured" if whole_trace is None else f"slowdown {whole_trace:.2f}"), ", ".join(rest)
    found.sort(key=lambda one: -one[1].ratio)
    more = [f"{label}: {slowdown}" for label, slowdown in found[1:_SHOWN_SLOWDOWNS]]
    more += [f"{len(found) - _SHOWN_SLOWDOWNS} more"] * (len(found) > _SHOWN_SLOWDOWNS)
    first = f"slowdown {found[0][1]}" + (f" of {found[0][0]}" if len(found) > 1 else "")
    return first, "; ".join([*more, ", ".join(rest)] if rest else more)


_COSTS = {"wait": "host wait", "finalize": "copy-out"}
"""What `warplens info` and `run` call costs whose names say less."""


def _measured(name: str, value: float) -> str:
    """A cost with its unit, which its name ends with."""
    for suffix, ns in (("_ns", 1.0), ("_us", 1e3), ("_ms", 1e6), ("_s", 1e9)):
        if name.endswith(suffix):
            stem = name.removesuffix(suffix)
            return f"{_COSTS.get(stem, stem.replace('_', ' '))} {duration(value * ns)}"
    return f"{name.replace('_', ' ')} {value:,.4g}"


def warnings(trace: Trace) -> list[str]:
    return [*filter(None, [time_line(trace)]), *warnings_of(trace)]


def coverage(trace: Trace, shown: ThinnedTrace) -> list[str]:
    """What the report does not show, and how to see the rest: blocks that were not recorded, and spans left out."""
    sampled = sample_line(trace.meta.launches)
    lines = [f"{sampled}; `--blocks all` records every block"] if sampled else []
    if len(shown.trace) < len(trace):
        part = percent(len(shown.trace) / len(trace), 0 if len(shown.trace) * 100 >= len(trace) else 2)
        lines.append(
            f"{shown.kept:,} of {shown.blocks:,} blocks shown in the timeline, {part} of the spans; statistics and "
            "heat maps cover all; `warplens report --limit 0` shows all"
        )
    return lines


def statistics_rows(
    stats: Statistics, places: dict[str, int], colours: Sequence[str], made: dict[str, Histogram], meta: Meta
) -> list[dict[str, Any]]:
    kernels = {one.label: one.kernel for one in kernel_variants(meta.launches)}
    return [
        {
            "code": places[row.region],
            "region": row.region,
            "variant": row.variant,
            "colour": colours[places[row.region]],
            "location": meta.locations_of(kernels.get(row.variant, "")).get(row.region, ""),
            "durations": [{"cycles": row[name], "ns": row[f"{name}_ns"]} for name in _DURATIONS],
            "histogram": spark(made[row.region]) if row.region in made and not row.variant else "",
            "purity": None if row.purity != row.purity else row.purity,
            "moved_out": row.moved_out,
            "corrected": corrected_text(row),
            **{name: row[name] for name in ("count", "open", "share", "exclusive_share", "warp_spread", "sm_spread")},
        }
        for row in stats
    ]


def corrected_text(row: RegionStatistics) -> str:
    """The mean without the region's own marks and its interval; empty without a calibration."""
    if row.corrected != row.corrected:
        return ""
    bounds = f"{integer(row.corrected_low)} to {integer(row.corrected_high)}"
    return f"{integer(row.corrected)} cycles without its own marks (between {bounds})"


def spark(made: Histogram, width: float = 120, height: float = 21) -> str:
    """A histogram as an SVG path. Bins are drawn equally wide, as they are on their scale."""
    most, each = max(made.counts, default=0), width / max(len(made.counts), 1)
    if not most:
        return ""
    steps = []
    for at, count in enumerate(made.counts):
        # The square root keeps a tail of single spans visible next to a peak of thousands.
        y = height - height * math.sqrt(count / most)
        steps.append(f"L{at * each:.1f},{y:.1f}L{(at + 1) * each:.1f},{y:.1f}")
    return f"M0,{height}{''.join(steps)}L{width},{height}Z"


def quoted(text: str) -> Markup:
    """Escape a text and set `names` in backquotes as code."""
    parts = text.split("`")
    joined = "".join(f"<code>{escape(part)}</code>" if at % 2 else str(escape(part)) for at, part in enumerate(parts))
    return Markup(joined)


def warp_matrix(trace: Trace, order: Sequence[str] = ()) -> dict[str, Any] | None:
    """Mean cycles of each region in each warp of a block, in the order of the regions' names; None for one warp, or too
    many."""
    found = by_region(trace, "warp_index")
    if not 2 <= len(found.rows.labels) <= _MATRIX_ROWS or not len(found.regions):
        return None
    entered = ranked(found.regions, np.flatnonzero(~np.isnan(found.mean).all(axis=0)).tolist(), order)[:_MATRIX_COLUMNS]
    means = np.nanmean(found.mean[:, entered], axis=0)
    rows = []
    for label, values in zip(found.rows.labels, found.mean[:, entered], strict=True):
        # The colours span 25 % below to 25 % above the mean, so that noise stays grey.
        cells = [
            {"text": ""} if math.isnan(value) else shaded(f"{value:,.0f}", 0.5 + 2 * (value - mean) / (mean or 1.0))
            for value, mean in zip(values.tolist(), means.tolist(), strict=True)
        ]
        rows.append({"name": label, "cells": cells})
    return {"columns": [found.regions[at] for at in entered], "rows": rows}


def shaded(text: str, share: float) -> dict[str, str]:
    """A cell of a heat table, dark for low and bright for high, with legible text."""
    at = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    low = min(int(at), len(_RAMP) - 2)
    mixed = (round(a + (b - a) * (at - low)) for a, b in zip(rgb(_RAMP[low]), rgb(_RAMP[low + 1]), strict=True))
    fill = "#" + "".join(f"{part:02X}" for part in mixed)
    return {"text": text, "fill": fill, "ink": ink(fill)}


def overlaps(answers: Sequence[Answers]) -> list[dict[str, Any]]:
    """The overlap matrix of each kernel."""
    made = []
    for letter, each in zip(_letters(answers), answers, strict=True):
        for kernel, one in each.of(OVERLAP).kernels.items():
            names = [region.region for region in one.regions]
            most = max((max(row) for row in one.together), default=0.0) or 1.0
            rows = [
                {"name": name, "cells": [shaded(percent(value), value / most) for value in row]}
                for name, row in zip(names, one.together, strict=True)
            ]
            note = f"every marked warp waited during {percent(one.waiting)} of SM time"
            if any(region.purpose == "memory" for region in one.regions):
                note += (
                    f"; memory regions ran without work during {percent(one.memory_exposed)}; {percent(one.hidden)} of "
                    "the memory time was hidden by work"
                )
            if names:
                made.append({"letter": letter, "kernel": kernel, "columns": names, "rows": rows, "note": f"{note}."})
    return made


def paths(
    answers: Sequence[Answers], places: dict[str, int], colours: Sequence[str]
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """The tables, and for each trace the path [launch, block, warp, begin, end] that the timeline outlines."""
    tables, outlines = [], []
    for letter, each in zip(_letters(answers), answers, strict=True):
        outline: list[Any] = []
        measured = slopes_of(each.trace)
        for kernel, one in each.of(CRITICAL_PATH).kernels.items() if len(each.trace) else ():
            rows = [
                {
                    "region": r.region,
                    "colour": colours[places[r.region]],
                    "share": r.share,
                    "ns": r.ns,
                    "slack": r.slack_ns,
                    "gain": r.at(0.25),
                    "slope": slope_text(measured.get((kernel, r.region))),
                }
                for r in one.regions
                if r.region in places
            ]
            rest = [
                ("outside every region", one.unmarked_ns),
                ("between blocks", one.between_ns),
                ("launch and exit", one.launch_ns),
            ]
            tables.append(
                {
                    "letter": letter,
                    "kernel": kernel,
                    "length": one.length_ns,
                    "rows": rows,
                    "rest": rest,
                    "assumptions": one.assumptions,
                }
            )
            outline += [[one.launch, step.block, step.warp, step.start_ns, step.end_ns] for step in one.steps]
        outlines.append(outline)
    return tables, outlines


def _letters(answers: Sequence[Answers]) -> list[str]:
    return ["A", "B"] if len(answers) > 1 else [""]
