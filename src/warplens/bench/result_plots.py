"""Plots of results: latency, throughput, speed-up and memory over x, and a roofline."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warplens.analyse.roofline import Ceilings
from warplens.bench.result_tables import heading
from warplens.bench.results import ResultRow, Results, Sweep
from warplens.errors import WarplensError, check_name
from warplens.files import atomic_write, check_writable, safe_name
from warplens.view.figures import new_figure
from warplens.view.palette import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("latency", "throughput", "speedup", "memory", "roofline")
FORMATS = ("svg", "png", "pdf")
_MARKERS = "os^Dv<>P"

Value = Callable[[ResultRow], "float | None"]


def write_plots(
    results: Results, folder: str | os.PathLike[str], *, format: str = "svg", force: bool = False
) -> list[Path]:
    """Write one file per benchmark, group and kind of plot that has data."""
    check_name(f"unknown plot format {format!r}", format, FORMATS)
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise WarplensError(f"{target}: is a file; give a folder for the plots")
    figures = {target / f"{name}.{format}": figure for name, figure in plots(results).items()}
    if not figures:
        raise WarplensError("none of the cases was timed; there is nothing to plot")
    for path in figures:
        if path.exists():
            check_writable(path, force=force)
    target.mkdir(parents=True, exist_ok=True)
    for path, figure in figures.items():
        with atomic_write(path, force=force) as out:
            figure.savefig(out, format=format, dpi=160)
    return list(figures)


def plots(results: Results) -> dict[str, Figure]:
    """Return the plots as figures, by file name without suffix."""
    groups = results.groups()
    out = {}
    for (name, others), rows in groups.items():
        varying = _varying(name, others, groups)
        for kind in KINDS:
            figure = plot(results, kind, rows)
            if figure is not None:
                out["-".join([name, kind, *varying])] = figure
    return out


def plot(results: Results, kind: str, rows: Sequence[ResultRow]) -> Figure | None:
    """Draw one kind of plot for the rows of one group; return None if they have no data for it."""
    check_name(f"unknown plot {kind!r}", kind, KINDS)
    sweep = results.sweep(rows[0].benchmark)
    others = [(name, rows[0].params.get(name)) for name in sweep.others]
    value, label = _quantity(kind, sweep, rows)
    if not any(value(row) for row in rows) or (kind == "roofline" and not results.roofs):
        return None
    figure = new_figure()
    figure.set_size_inches(7.2, 4.4)
    axis = figure.subplots()
    if kind == "roofline":
        draw_roofline(axis, rows, results.roofs)
    else:
        draw_lines(axis, sweep, rows, value, kind)
        axis.set_ylabel(label)
    axis.set_title(heading(sweep, others), fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(fontsize=8, frameon=False)
    figure.text(
        0.995, 0.005, str(results.machine.get("device", "")), ha="right", va="bottom", fontsize=6, color="#777777"
    )
    figure.set_layout_engine("constrained")
    return figure


def draw_lines(axis: Axes, sweep: Sweep, rows: Sequence[ResultRow], value: Value, kind: str) -> None:
    """Draw one line per implementation over x; for latencies also the band from p5 to p95."""
    lines = list(dict.fromkeys(row.line for row in rows))
    xs = list(dict.fromkeys(row.x for row in rows))
    numeric = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in xs)
    place: Callable[[Any], float] = float if numeric else xs.index
    for at, (line, colour) in enumerate(zip(lines, colours(len(lines)), strict=True)):
        mine = [row for row in rows if row.line == line]
        shown = sorted((row for row in mine if value(row)), key=lambda row: place(row.x))
        x, y = [place(row.x) for row in shown], [value(row) or math.nan for row in shown]
        style = "--" if kind == "speedup" and line == sweep.baseline else "-"
        label = line + _missing(mine, value)
        axis.plot(x, y, style, marker=_MARKERS[at % len(_MARKERS)], markersize=4, color=colour, label=label)
        if kind == "latency" and shown:
            low, high = ([row.p5_ns or math.nan for row in shown], [row.p95_ns or math.nan for row in shown])
            axis.fill_between(x, [ns / 1000 for ns in low], [ns / 1000 for ns in high], color=colour, alpha=0.18, lw=0)
    if numeric and min(map(float, xs)) > 0 and max(map(float, xs)) >= 4 * min(map(float, xs)):
        axis.set_xscale("log", base=2)
        axis.minorticks_off()
    places = [place(x) for x in xs]
    axis.set_xticks(places, [str(x) for x in xs])
    axis.set_xlabel(sweep.x)
    values = [number for row in rows if (number := value(row))]
    if kind in ("latency", "memory") and max(values) > 20 * min(values):
        axis.set_yscale("log")
        _plain_numbers(axis, "y")
    else:
        axis.set_ylim(bottom=0)


def draw_roofline(axis: Axes, rows: Sequence[ResultRow], roofs: Mapping[str, Ceilings]) -> None:
    """Draw the roof of each type, and a point for every case that declares FLOPs and bytes."""
    placed = [row for row in rows if _on_roof(row)]
    intensities = [_intensity(row) for row in placed]
    used = {name: roof for name, roof in roofs.items() if any(row.dtype == name for row in placed)} or dict(roofs)
    low = min([*intensities, *(roof.ridge for roof in used.values())]) / 4
    high = max([*intensities, *(roof.ridge for roof in used.values())]) * 4
    for name, roof in used.items():
        x = [low, roof.ridge, high]
        source = "measured" if roof.measured else "listed"
        label = f"{source} roof, {name}: {roof.tflops:,.0f} TFLOP/s, {roof.bandwidth:,.0f} GB/s"
        axis.plot(
            x, [roof.bandwidth * low / 1000, roof.tflops, roof.tflops], color="#444444", linewidth=1.2, label=label
        )
    lines = list(dict.fromkeys(row.line for row in placed))
    for at, (line, colour) in enumerate(zip(lines, colours(len(lines)), strict=True)):
        mine = [row for row in placed if row.line == line]
        x, y = [_intensity(row) for row in mine], [row.tflops or math.nan for row in mine]
        axis.plot(x, y, _MARKERS[at % len(_MARKERS)], markersize=4.5, color=colour, label=line, alpha=0.85)
        for row, across, up in zip(mine, x, y, strict=True):
            axis.annotate(str(row.x), (across, up), (3, 3), textcoords="offset points", fontsize=5, color=colour)
    axis.set_xscale("log")
    axis.set_yscale("log")
    reached = [row.tflops for row in placed if row.tflops]
    axis.set_ylim(
        10 ** math.floor(math.log10(min(reached))), 2 * max([*reached, *(roof.tflops for roof in used.values())])
    )
    for which in ("x", "y"):
        _plain_numbers(axis, which)
    axis.set_xlabel("arithmetic intensity (FLOP/byte)")
    axis.set_ylabel("TFLOP/s")


def _quantity(kind: str, sweep: Sweep, rows: Sequence[ResultRow]) -> tuple[Value, str]:
    if kind == "latency":
        return (lambda row: row.median_ns / 1000 if row.median_ns else None), "median time (µs), band p5 to p95"
    if kind == "throughput":
        if any(row.tflops for row in rows):
            return (lambda row: row.tflops), "TFLOP/s"
        return (lambda row: row.gbps), "GB/s"
    if kind == "speedup":
        return (lambda row: row.speedup), f"speed-up over {sweep.baseline}"
    if kind == "memory":
        return (lambda row: row.peak_bytes / 2**20 if row.peak_bytes else None), "peak device memory (MiB)"
    return (lambda row: row.tflops if _on_roof(row) else None), "TFLOP/s"


def _plain_numbers(axis: Axes, which: str) -> None:
    """Label the axis with 1000 rather than 10³, at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    chosen = axis.xaxis if which == "x" else axis.yaxis
    chosen.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    chosen.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    chosen.set_minor_formatter(NullFormatter())


def _missing(rows: Sequence[ResultRow], value: Value) -> str:
    """Return why points of a line are missing, for the legend."""
    words = {"oom": "out of memory", "failed": "failed", "wrong": "wrong"}
    gone = [row for row in rows if row.status in words and (row.status == "wrong" or not value(row))]
    if not gone:
        return ""
    reason = words[gone[0].status]
    return f" ({reason} at {', '.join(str(row.x) for row in gone if words[row.status] == reason)})"


def _varying(name: str, others: Sequence[tuple[str, Any]], groups: Mapping[Any, Any]) -> list[str]:
    """Return the parameters that distinguish this group from the others of its benchmark, for the file name."""
    values: dict[str, set[str]] = {}
    for group, pairs in groups:
        for key, value in pairs:
            if group == name:
                values.setdefault(key, set()).add(str(value))
    return [safe_name(f"{key}={value}") for key, value in others if len(values[key]) > 1]


def _on_roof(row: ResultRow) -> bool:
    return bool(row.tflops and row.flops and row.bytes)


def _intensity(row: ResultRow) -> float:
    assert row.flops
    assert row.bytes
    return row.flops / row.bytes
