"""Figures of the timeline and of the regions' durations, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warplens.analyse.histogram import durations
from warplens.analyse.timeline import innermost, rows_of
from warplens.errors import WarplensError, check_name
from warplens.files import atomic_write
from warplens.installed import version_numbers
from warplens.text import printable
from warplens.trace.arrays import run_starts
from warplens.trace.model import Trace
from warplens.view.palette import colours
from warplens.wording import first_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("timeline", "stats", "both")
_MAX_ROWS = 64
_MAX_BARS = 200_000


def plot(
    trace: Trace, kind: str = "both", *, by: str | None = None, rows: int = _MAX_ROWS, width: float = 10.0
) -> Figure:
    """Draw a matplotlib figure: `timeline` (bars by sm, block or warp), `stats` (durations per region) or `both`."""
    check_name(f"no plot named {kind!r}", kind, KINDS)
    figure = new_figure()
    spans = len(trace.regions)
    chosen = by or ("warp" if int(trace.numpy("track").max(initial=0)) < _MAX_ROWS else "sm")
    lines = min(len(rows_of(trace, chosen).labels), rows)
    heights = {"timeline": 0.9 + 0.16 * max(lines, 4), "stats": 0.9 + 0.34 * max(spans, 2)}
    parts = ["timeline", "stats"] if kind == "both" else [kind]
    figure.set_size_inches(width, sum(heights[part] for part in parts))
    axes = figure.subplots(len(parts), 1, height_ratios=[heights[part] for part in parts], squeeze=False)[:, 0]
    for part, axis in zip(parts, axes, strict=True):
        if part == "timeline":
            draw_timeline(trace, axis, chosen, rows)
        else:
            draw_statistics(trace, axis)
    figure.set_layout_engine("constrained")
    return figure


def draw_timeline(trace: Trace, axis: Axes, by: str = "sm", most: int = _MAX_ROWS) -> None:
    """Draw each row's innermost regions as bars; the warps of a row are stacked inside it."""
    layout, palette = rows_of(trace, by), colours(len(trace.regions))
    parts = innermost(trace)
    row, region = layout.of_span[parts.row], trace.codes("region")[0][parts.row]
    lane, lanes = _lanes_of(trace, layout.of_span, parts.row, len(layout.labels))
    shown = min(len(layout.labels), most)
    drawn = 0
    for code, name in enumerate(trace.regions):
        mine = (region == code) & (row < shown)
        drawn += int(mine.sum())
        if drawn > _MAX_BARS:
            raise WarplensError(
                f"{drawn:,} or more bars are too many for one figure (at most {_MAX_BARS:,}); select part of the "
                "trace first, for example trace.select(sm=0) or trace.select(time=(0, 20_000)), or write the report"
            )
        if not mine.any():
            continue
        step = 0.86 / lanes[row[mine]]
        bottom = row[mine] - 0.43 + lane[mine] * step
        begin, length = parts.begin[mine] / 1e3, (parts.end - parts.begin)[mine] / 1e3
        boxes = zip(begin.tolist(), length.tolist(), bottom.tolist(), step.tolist(), strict=True)
        axis.add_collection(_bars(list(boxes), palette[code], name))
    axis.set_xlim(float(parts.begin.min(initial=0)) / 1e3, max(float(parts.end.max(initial=1)) / 1e3, 1e-3))
    axis.set_ylim(shown - 0.4, -0.6)
    step = max(1, shown // 24)
    axis.set_yticks(range(0, shown, step), [_as_text(layout.labels[at]) for at in range(0, shown, step)], fontsize=7)
    axis.set_xlabel("time (µs)")
    hidden = len(layout.labels) - shown
    axis.set_title(
        _as_text(first_of(trace.kernels)) + (f" ({hidden:,} more rows not shown)" if hidden else ""), fontsize=10
    )
    if drawn:
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def _bars(boxes: list[tuple[float, float, float, float]], colour: str, name: str) -> Any:
    from matplotlib.collections import PolyCollection

    corners = [((x, y), (x, y + high), (x + wide, y + high), (x + wide, y)) for x, wide, y, high in boxes]
    # Rasterised inside an SVG or PDF: no viewer opens a file with a hundred thousand paths.
    return PolyCollection(corners, facecolors=colour, linewidths=0, label=_as_text(name), rasterized=len(boxes) > 5000)


def _as_text(name: str) -> str:
    """A name as matplotlib shows it: not as a formula between dollar signs, and not left out of a legend."""
    text = printable(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text or " "


def _lanes_of(trace: Trace, row_of_span: Any, spans: Any, rows: int) -> tuple[Any, Any]:
    """The position of each segment's track among the tracks of its row, and the number of tracks per row."""
    track = trace.numpy("track")
    heads = run_starts(track)
    owner = row_of_span[heads]
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=rows)
    place = np.empty(len(heads), np.int64)
    place[order] = np.arange(len(heads)) - np.repeat(np.cumsum(counts) - counts, counts)
    number = np.cumsum(np.append(True, track[1:] != track[:-1])) - 1 if len(track) else np.empty(0, np.int64)
    return place[number[spans]], np.maximum(counts, 1)


def draw_statistics(trace: Trace, axis: Axes) -> None:
    """Draw durations per region: a box from p25 to p75, whiskers to p1 and p99, and the median."""
    found = durations(trace)
    palette = dict(zip(trace.regions, colours(len(trace.regions)), strict=True))
    names = sorted(found, key=lambda name: -float(found[name].sum()))
    boxes = []
    for name in names:
        low, first, middle, third, high = np.percentile(found[name], (1, 25, 50, 75, 99)).tolist()
        ends = {"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high}
        boxes.append({"label": _as_text(name), **ends, "fliers": []})
    if boxes:
        drawn = axis.bxp(boxes, **_horizontal(), patch_artist=True, showfliers=False, widths=0.6)
        for patch, name in zip(drawn["boxes"], names, strict=True):
            patch.set(facecolor=palette[name], edgecolor="#333333", linewidth=0.6)
        for line in (*drawn["medians"], *drawn["whiskers"], *drawn["caps"]):
            line.set(color="#333333", linewidth=0.9)
    axis.invert_yaxis()
    axis.set_xlabel("cycles (box p25 to p75, whiskers p1 to p99)")
    axis.spines[["top", "right"]].set_visible(False)
    largest = max((box["whishi"] for box in boxes), default=1)
    if largest > 50 * max(min((box["med"] for box in boxes), default=1), 1):
        axis.set_xscale("symlog", linthresh=10)
    axis.set_xlim(left=0)


def _horizontal() -> dict[str, Any]:
    """The keyword for horizontal boxes, which was renamed in matplotlib 3.10."""
    import matplotlib

    modern = version_numbers(matplotlib.__version__) >= (3, 10)
    return {"orientation": "horizontal"} if modern else {"vert": False}


def write(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.png` or `.svg`."""
    figure = plot(trace)
    with atomic_write(path, force=force) as out:
        figure.savefig(out, format=path.suffix.lower().lstrip("."), dpi=160)


def new_figure() -> Figure:
    """An empty figure; an error says how to install matplotlib where it is missing."""
    try:
        from matplotlib.figure import Figure as Made
    except ImportError:
        raise WarplensError("plots need matplotlib: pip install 'warplens[viewer]'") from None
    return Made()
