"""A stacked bar for each region: what its warps were stalled by, from samples of its instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warplens.analyse.region_counters import AttributedPages, RegionCounters
from warplens.view.palette import colours
from warplens.wording import percent

WIDTH = 480.0
_NAMED = 8
"""Reasons that have a colour of their own; the rest is one piece."""


def stall_bars(found: Sequence[AttributedPages], letters: Sequence[str]) -> list[dict[str, Any]]:
    """One chart per trace that has counters: its reasons with colours, its bars, and what was not attributed."""
    charts = []
    for letter, one in zip(letters, found, strict=False):
        if not one.regions and not one.notes:
            continue
        totals: dict[str, float] = {}
        for region in one.regions:
            for reason, count in region.stalls.items():
                totals[reason] = totals.get(reason, 0.0) + count
        reasons = sorted(totals, key=lambda name: -totals[name])[:_NAMED]
        palette = dict(zip(reasons, colours(len(reasons)), strict=True))
        charts.append(
            {
                "letter": letter if len(letters) > 1 else "",
                "reasons": [{"name": name, "colour": palette[name]} for name in reasons],
                "bars": [_bar(region, palette) for region in one.regions],
                "notes": list(one.notes),
            }
        )
    return charts


def _bar(region: RegionCounters, palette: dict[str, str]) -> dict[str, Any]:
    pieces, at = [], 0.0
    known = sum(region.stalls.values())
    for name, colour in palette.items():
        share = region.stalls.get(name, 0.0) / known if known else 0.0
        if share:
            width, title = round(WIDTH * share, 2), f"{name} {percent(share)}"
            pieces.append({"x": round(at, 2), "width": width, "colour": colour, "title": title})
            at += WIDTH * share
    return {
        "region": region.region,
        "kernel": region.kernel,
        "basis": f"{region.source}, {region.basis}",
        "samples": f"{region.samples:,.0f}",
        "share": region.share,
        "text": region.sentence,
        "pieces": pieces,
    }
