"""Descriptions of tracks and launches for timelines."""

from __future__ import annotations

from typing import Any

from warplens.export.track_table import LaunchOnSm, TrackTable
from warplens.trace.schema import ClockFit, Meta
from warplens.wording import duration


def describe_launch(entry: LaunchOnSm) -> str:
    return f"{entry.kernel} #{entry.launch}"


def launch_facts(entry: LaunchOnSm, meta: Meta) -> dict[str, Any]:
    """The details shown for a launch."""
    facts: dict[str, Any] = {"kernel": entry.kernel, "launch": entry.launch, "rank": entry.rank}
    if entry.info is not None:
        facts["grid"] = _sizes(entry.info.grid)
        facts["block"] = _sizes(entry.info.block)
        facts["clock"] = entry.info.clock
        if "finalize_ns" in entry.info.cost:
            facts["finalize_ns"] = float(entry.info.cost["finalize_ns"])
    if meta.clock.anchors:
        facts["clock_error_p99_ns"] = float(meta.clock.error_p99_ns)
        facts["mhz_mean"] = float(meta.clock.mhz_mean)
    if str(entry.rank) in meta.rank_clocks.get("ranks", {}):
        facts["rank_clock_bound_ns"] = float(meta.rank_clocks["ranks"][str(entry.rank)]["worst_ns"])
    if meta.losses.records_lost:
        facts["records_lost"] = meta.losses.records_lost
    return facts


def describe_track(tracks: TrackTable, track: int, clock: ClockFit) -> str:
    """One line: the position of the warp in the grid, and the error of its times."""
    info = tracks.infos[track]
    block = int(tracks.identity["block"][track])
    text = f"SM {int(tracks.identity['sm'][track])}, block {block}"
    if info is not None:
        x, y, _ = info.grid
        text += f" ({block % x}, {block // x % y}, {block // (x * y)}) of grid {_sizes(info.grid)}"
    text += f", warp {int(tracks.identity['warp'][track])}"
    return f"{text}; times ±{duration(clock.error_p99_ns)} (p99)" if clock.anchors else text


def _sizes(values: tuple[int, int, int]) -> str:
    return "×".join(map(str, values))
