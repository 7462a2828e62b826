"""The heat maps and the minimap of a report: their payload, and the data that the script needs to draw them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from warplens.analyse.heatmap import by_block, over_time
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo
from warplens.view.payload import ColumnPacker

_MINIMAP_BINS = 600
_HEAT_BINS = 240
_MAX_WARP_ROWS = 64
_TITLES = {"sm": "SM by time", "warp_index": "Warp of a block by time"}

Info = dict[str, Any]


def pack_maps(trace: Trace, packer: ColumnPacker, places: dict[str, int], order: Sequence[str] = ()) -> Info:
    """Pack the minimap and all heat maps; `order` has the busiest regions first."""
    chosen, launch = focus(trace)
    return {
        "minimap": _minimap(trace, packer, places),
        "over_time": [made for by in _TITLES if (made := _over_time(chosen, by, packer, places)) is not None],
        "blocks": _blocks(chosen, launch, packer, places, order),
    }


def focus(trace: Trace) -> tuple[Trace, LaunchInfo | None]:
    """The longest launch; heat maps over several launches would mostly show the time between them."""
    launches = trace.meta.launches
    if len(launches) < 2:
        return trace, launches[0] if launches else None
    longest = max(launches, key=lambda info: info.end_ns - info.begin_ns)
    return trace.select(launch=longest.launch, rank=longest.rank), longest


def note(trace: Trace) -> str:
    launch = focus(trace)[1]
    if launch is None or len(trace.meta.launches) < 2:
        return "intensity: mean number of active warps"
    return f"longest launch: {launch.kernel} #{launch.launch}; intensity: mean number of active warps"


def _minimap(trace: Trace, packer: ColumnPacker, places: dict[str, int]) -> Info:
    found = over_time(trace, "warp_index", _MINIMAP_BINS)
    warps = found.warps.sum(axis=1)
    most = warps.sum(axis=0).max(initial=0.0) or 1.0
    packer.octets("minimap", np.round(255 * warps / most))
    return {"bins": _MINIMAP_BINS, "regions": [places.get(name, -1) for name in found.regions]}


def _over_time(trace: Trace, by: str, packer: ColumnPacker, places: dict[str, int]) -> Info | None:
    if not len(trace):
        return None
    found = over_time(trace, by, _HEAT_BINS)
    if by == "warp_index" and not 2 <= len(found.rows.labels) <= _MAX_WARP_ROWS:
        return None
    peak = float(found.warps.sum(axis=0).max(initial=0.0)) or 1.0
    packer.octets(f"over_time.{by}", np.round(255 * found.warps / peak))
    return {
        "by": by,
        "title": _TITLES[by],
        "column": f"over_time.{by}",
        "labels": list(found.rows.labels),
        "regions": [places.get(name, -1) for name in found.regions],
        "begin": found.begin,
        "end": found.end,
        "bins": _HEAT_BINS,
        "peak": peak,
    }


def ranked(regions: Sequence[str], entered: Iterable[int], order: Sequence[str]) -> list[int]:
    """Codes of regions in the order of their names in `order`; names that it lacks come last."""
    rank = {name: at for at, name in enumerate(order)}
    return sorted(entered, key=lambda code: rank.get(regions[code], len(rank)))


def _blocks(
    trace: Trace, launch: LaunchInfo | None, packer: ColumnPacker, places: dict[str, int], order: Sequence[str]
) -> Info | None:
    found = by_block(trace)
    entered = np.flatnonzero(~np.isnan(found.mean).all(axis=0)) if found.blocks > 1 else np.empty(0, np.int64)
    shown = ranked(found.regions, entered.tolist(), order)
    if not shown:
        return None
    packer.floats("blocks", found.mean[:, shown].reshape(-1))
    cells = len(found.mean)
    flat = launch is None or found.each > 1 or launch.grid[1] * launch.grid[2] == 1
    across = int(np.ceil(np.sqrt(cells * 4))) if flat or launch is None else launch.grid[0]
    return {
        "title": "Block by region: mean cycles" + (f", {found.each} blocks per cell" if found.each > 1 else ""),
        "column": "blocks",
        "cells": cells,
        "each": found.each,
        "across": min(max(across, 1), cells),
        "regions": [places[found.regions[at]] for at in shown],
    }
