"""The HTML report: one file that holds everything it needs, loads nothing, and treats names as data."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import warplens
from warplens.analyse.finding import duration, percent
from warplens.analyse.heatmap import by_block, over_time
from warplens.analyse.histogram import histograms
from warplens.analyse.lines import lines
from warplens.analyse.lives import Lives
from warplens.analyse.roles import warp_roles
from warplens.analyse.statistics import Statistics
from warplens.analyse.timeline import Thinned, innermost, thinned
from warplens.errors import UsageError
from warplens.files import atomic_write
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo
from warplens.view import bundle, sections
from warplens.view.comparison import comparison
from warplens.view.palette import colours, ink, union
from warplens.view.payload import Packer, pack_spans
from warplens.view.source import listing

LIMIT = 2_000_000
"""Spans that a report's timeline holds unless told otherwise; statistics and heat maps always cover all of them."""

_MINIMAP_BINS = 600
_HEAT_BINS = 240
_MOST_WARP_ROWS = 64


@dataclass(frozen=True)
class Options:
    """How a report is made. `limit` 0 keeps every span; `sources` are the folders that source files are read from."""

    limit: int = LIMIT
    sources: Sequence[Path] = ()
    labels: Sequence[str] = ()
    made: str = ""


@dataclass
class _Part:
    """One trace of a report: what is in its payload, and what the page is told about it."""

    trace: Trace
    shown: Thinned
    letter: str
    label: str
    stats: Statistics
    packer: Packer = field(default_factory=Packer)


def report(traces: Sequence[Trace], options: Options | None = None) -> str:
    """The report of one trace, or of two side by side, as the text of an HTML file."""
    if not 1 <= len(traces) <= 2:
        raise UsageError(f"a report shows one trace or compares two; {len(traces)} were given")
    chosen = options or Options()
    names = union(*(trace.regions for trace in traces))
    places = {name: at for at, name in enumerate(names)}
    palette = colours(len(names))
    parts = [_part(trace, at, chosen) for at, trace in enumerate(traces)]
    spread = histograms(*traces)
    tables, outlines = sections.paths(traces, places, palette)
    infos = [_info(part, at, places, outlines[at]) for at, part in enumerate(parts)]
    locations = {name: text for trace in traces for name, text in trace.meta.locations.items()}
    document = {
        "regions": [
            {"name": name, "colour": colour, "ink": ink(colour), "location": locations.get(name, "")}
            for name, colour in zip(names, palette, strict=True)
        ],
        "histograms": _histograms(spread, parts, places),
        "traces": infos,
    }
    context = {
        "title": " and ".join(dict.fromkeys(", ".join(trace.kernels[:3]) or "empty trace" for trace in traces)),
        "version": warplens.__version__,
        "made": chosen.made,
        "summaries": [
            {
                "letter": part.letter,
                "file": part.label,
                "facts": sections.summary(part.trace),
                "warnings": sections.warnings(part.trace),
            }
            for part in parts
        ],
        "findings": sections.finding_groups(traces),
        "comparison": comparison(traces, [part.stats for part in parts], places, palette) if len(parts) > 1 else None,
        "statistics": {
            "note": f"of closed spans; shares of {duration(sum(part.stats.busy_ns for part in parts))} of warp time",
            "tables": [
                {
                    "letter": part.letter,
                    "rows": sections.statistics_rows(
                        part.stats,
                        places,
                        palette,
                        {name: made for name, each in spread.items() if (made := each[at]) is not None},
                        part.trace.meta.locations,
                    ),
                }
                for at, part in enumerate(parts)
            ],
        },
        "heat_note": _heat_note(parts),
        "overlaps": sections.overlaps(traces),
        "paths": tables,
        "rooflines": [],
        "sources": listing([line for part in parts for line in lines(part.trace, part.stats)], chosen.sources),
        "traces": [
            {
                "letter": part.letter,
                "label": part.label,
                "shown": info["shown"],
                "payload": info["payload"],
                "text": part.packer.text,
                "matrix": sections.warp_matrix(_focus(part.trace)[0]),
            }
            for part, info in zip(parts, infos, strict=True)
        ],
        "document": _json(document),
    }
    return _render(context)


def write(
    trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None, options: Options | None = None
) -> None:
    """The exporter of `.html`."""
    save([trace], path, options, force=force)


def save(
    traces: Sequence[Trace], path: str | os.PathLike[str], options: Options | None = None, *, force: bool = True
) -> Path:
    """Write the report so that it appears whole or not at all."""
    text = report(traces, options)
    with atomic_write(path, force=force) as out:
        out.write(text.encode())
    return Path(path)


def _render(context: dict[str, Any]) -> str:
    style = bundle.read("vendor/uPlot.css") + bundle.read("report.css")
    charts, script = bundle.read("vendor/uPlot.js"), bundle.script()
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "duration": duration,
        "percent": percent,
        "quoted": sections.quoted,
        "cycles": lambda value: "" if value is None else f"{value:,.0f}",
    }
    policy = bundle.content_security_policy([charts, script], [style])
    return environment.get_template("report.html.j2").render(
        context | {"policy": policy, "style": style, "charts": charts, "script": script}
    )


def _part(trace: Trace, at: int, options: Options) -> _Part:
    shown = thinned(trace, options.limit)
    label = options.labels[at] if at < len(options.labels) else "AB"[at]
    return _Part(trace, shown, "AB"[at], label, trace.stats())


def _info(part: _Part, at: int, places: dict[str, int], outline: list[Any]) -> dict[str, Any]:
    """What the page's script is told of one trace; fills the part's payload on the way."""
    trace, packer = part.shown.trace, part.packer
    codes = np.array([places[name] for name in trace.regions], np.int64)
    pack_spans(trace, packer, codes)
    roles = warp_roles(Lives.of(trace))[0]
    used = [places[row.region] for row in part.stats]
    used += [places[name] for name in part.trace.regions if places[name] not in used]
    info: dict[str, Any] = {
        "label": part.label,
        "payload": f"payload-{at}",
        "spans": len(part.trace),
        "shown": len(trace),
        "sampling": f"{part.shown.kept:,} of {part.shown.blocks:,} blocks; --limit 0 keeps all",
        "kernels": trace.kernels,
        "launches": [_launch(launch) for launch in trace.meta.launches],
        "clock": asdict(part.trace.meta.clock),
        "roles": [
            f"{role.name}: {', '.join(role.regions[:5])}{', …' if len(role.regions) > 5 else ''}" for role in roles
        ],
        "regions": used,
        "critical": outline,
        "minimap": _minimap(part.trace, packer, places),
        "over_time": _over_time(part.trace, packer, places),
        "blocks": _blocks(part.trace, packer, places),
    }
    return info | {"columns": packer.manifest}


def _launch(info: LaunchInfo) -> dict[str, Any]:
    names = ("launch", "rank", "device", "kernel", "grid", "block", "begin_ns", "end_ns")
    return {name: getattr(info, name) for name in names}


def _minimap(trace: Trace, packer: Packer, places: dict[str, int]) -> dict[str, Any]:
    found = over_time(trace, "warp_index", _MINIMAP_BINS)
    warps = found.warps.sum(axis=1)
    most = warps.sum(axis=0).max(initial=0.0) or 1.0
    packer.octets("minimap", np.round(255 * warps / most))
    return {"bins": _MINIMAP_BINS, "regions": [places.get(name, -1) for name in found.regions]}


def _focus(trace: Trace) -> tuple[Trace, LaunchInfo | None]:
    """The longest launch: heat maps over several would mostly show the time between them."""
    launches = trace.meta.launches
    if len(launches) < 2:
        return trace, launches[0] if launches else None
    longest = max(launches, key=lambda info: info.end_ns - info.begin_ns)
    return trace.select(launch=longest.launch, rank=longest.rank), longest


def _heat_note(parts: Sequence[_Part]) -> str:
    launch = _focus(parts[0].trace)[1]
    if launch is None or len(parts[0].trace.meta.launches) < 2:
        return "a cell's strength is the mean number of warps at work in it"
    return f"of the longest launch, {launch.kernel} #{launch.launch}; strength is the mean number of warps at work"


def _over_time(trace: Trace, packer: Packer, places: dict[str, int]) -> list[dict[str, Any]]:
    focus = _focus(trace)[0]
    if not len(focus):
        return []
    segments = innermost(focus)
    made = []
    for by, title in (("sm", "SM by time"), ("warp_index", "Warp of a block by time")):
        found = over_time(focus, by, _HEAT_BINS, segments=segments)
        if by == "warp_index" and not 2 <= len(found.rows.labels) <= _MOST_WARP_ROWS:
            continue
        peak = float(found.warps.sum(axis=0).max(initial=0.0)) or 1.0
        packer.octets(f"over_time.{by}", np.round(255 * found.warps / peak))
        made.append(
            {
                "by": by,
                "title": title,
                "column": f"over_time.{by}",
                "labels": list(found.rows.labels),
                "regions": [places.get(name, -1) for name in found.regions],
                "begin": found.begin,
                "end": found.end,
                "bins": _HEAT_BINS,
                "peak": peak,
            }
        )
    return made


def _blocks(trace: Trace, packer: Packer, places: dict[str, int]) -> dict[str, Any] | None:
    focus, launch = _focus(trace)
    found = by_block(focus)
    if found.blocks < 2:
        return None
    entered = np.flatnonzero(~np.isnan(found.mean).all(axis=0))
    if not len(entered):
        return None
    packer.floats("blocks", found.mean[:, entered].reshape(-1))
    across = launch.grid[0] if launch and found.each == 1 and launch.grid[1] * launch.grid[2] > 1 else 0
    cells = len(found.mean)
    return {
        "title": "Block by region: mean cycles" + (f", {found.each} blocks a cell" if found.each > 1 else ""),
        "column": "blocks",
        "cells": cells,
        "each": found.each,
        "across": min(max(across or int(np.ceil(np.sqrt(cells * 4))), 1), cells),
        "regions": [places[found.regions[at]] for at in entered.tolist()],
    }


def _histograms(spread: dict[str, Any], parts: Sequence[_Part], places: dict[str, int]) -> dict[int, Any]:
    made = {}
    for name, each in spread.items():
        first = next(one for one in each if one is not None)
        row = next(part.stats[name] for part, one in zip(parts, each, strict=True) if one is not None)
        made[places[name]] = {
            "edges": first.edges,
            "scale": first.scale,
            "counts": [None if one is None else one.counts for one in each],
            "percentiles": [("p50", row.p50), ("p95", row.p95), ("p99", row.p99)],
        }
    return made


def _json(document: Any) -> str:
    """JSON that no name can break out of: inside a script element only `<` could, and escaped it is the same JSON."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


__all__ = ["LIMIT", "Options", "report", "save", "write"]
