"""The comparison of two traces as rows of a table, with the verdicts of the diff where available."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from warplens.analyse.diff import ChangeVerdict, Difference, KernelChange, diff
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
        {
            "region": f"{one.kernel}: {one.region}" if several else one.region,
            "colour": colours[places[one.region]],
            "verdict": one.verdict.value,
            "tone": _TONES.get(one.verdict, ""),
            **_change(one.changes.get("mean")),
            "explains": one.explains,
            "note": one.note,
            **_side("a", one.before),
            **_side("b", one.after),
        }
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
        {
            "region": region,
            "colour": colours[places[region]],
            "verdict": "",
            "tone": "",
            **_change(None),
            "explains": None,
            "note": "",
            **_side("a", sides[0].get(region)),
            **_side("b", sides[1].get(region)),
        }
        for region in dict.fromkeys(name for side in sides for name in side)
    ]


def _change(interval: Interval | None) -> dict[str, Any]:
    if interval is None or not math.isfinite(interval.change):
        return {"change": 0.0, "change_text": ""}
    return {"change": interval.change, "change_text": change(interval.change, interval.low, interval.high)}


def _side(letter: str, row: RegionStatistics | None) -> dict[str, Any]:
    return {f"{letter}_{name}": row[name] if row else None for name in _METRICS}
