"""The comparison of two traces as rows of a table, with the verdicts of the diff where available."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from warplens.analyse.diff import ChangeVerdict, Difference, KernelChange, RegionChange, diff
from warplens.analyse.resample import Interval
from warplens.analyse.statistics import RegionStatistics, Statistics
from warplens.errors import WarplensError
from warplens.trace.model import Trace
from warplens.wording import change, duration, integer, plural

_TONES = {ChangeVerdict.FASTER: "faster", ChangeVerdict.SLOWER: "slower"}
_METRICS = ("mean", "p50", "p95", "total", "count")


def comparison(
    traces: Sequence[Trace], stats: Sequence[Statistics], places: dict[str, int], colours: Sequence[str]
) -> dict[str, Any]:
    """Compare the regions of two traces; those that explain most of the kernel's change come first."""
    try:
        found = diff(*traces)
    except WarplensError as error:
        return {"kernels": [], "rows": _rows_without_verdict(stats, places, colours), "note": f"no verdict: {error}"}
    several = len(found.kernels) > 1
    rows = [
        _row(one.before, one.after, colours[places[one.region]], one)
        | {"region": f"{one.kernel}: {one.region}" if several else one.region}
        for one in found.regions
    ]
    return {"kernels": [_kernel(one) for one in found.kernels], "rows": rows, "note": _note(found)}


_MORE = "the noise is larger than the change, or unknown: record more launches of both"


def _note(found: Difference) -> str:
    confidence = f"{100 * found.confidence:g} % confidence for all regions together"
    margin = f"changes of up to {100 * found.margin:g} % count as the same"
    return f"cycles per span; change of the mean with its confidence interval ({confidence}); {margin}"


def _kernel(one: KernelChange) -> dict[str, Any]:
    return {
        "name": one.kernel,
        "text": f"{duration(one.before_ns)} → {duration(one.after_ns)}",
        "change": _change(one.interval)["change_text"],
        "verdict": one.verdict.value,
        "tone": _TONES.get(one.verdict, ""),
        "more": f"{one.launches[0]:,} and {plural(one.launches[1], 'launch')}, {integer(one.mhz[0])} and "
        f"{integer(one.mhz[1])} MHz" + ("; " + _MORE if one.verdict is ChangeVerdict.UNSURE else ""),
    }


def _rows_without_verdict(
    stats: Sequence[Statistics], places: dict[str, int], colours: Sequence[str]
) -> list[dict[str, Any]]:
    sides = [{row.region: row for row in each} for each in stats]
    return [
        _row(sides[0].get(region), sides[1].get(region), colours[places[region]]) | {"region": region}
        for region in dict.fromkeys(name for side in sides for name in side)
    ]


def _row(
    before: RegionStatistics | None, after: RegionStatistics | None, colour: str, judged: RegionChange | None = None
) -> dict[str, Any]:
    return {
        "colour": colour,
        "verdict": judged.verdict.value if judged else "",
        "tone": _TONES.get(judged.verdict, "") if judged else "",
        **_change(judged.changes.get("mean") if judged else None),
        "explains": judged.explains if judged else None,
        "note": judged.note if judged else "",
        **_side("a", before),
        **_side("b", after),
    }


def _change(interval: Interval | None) -> dict[str, Any]:
    if interval is None or not math.isfinite(interval.change):
        return {"change": 0.0, "change_text": ""}
    return {"change": interval.change, "change_text": change(interval.change, interval.low, interval.high)}


def _side(letter: str, row: RegionStatistics | None) -> dict[str, Any]:
    return {f"{letter}_{name}": row[name] if row else None for name in _METRICS}
