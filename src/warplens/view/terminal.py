"""A static timeline and histograms for the terminal, which also work over SSH, in pipes and with NO_COLOR."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text

from warplens.analyse.histogram import Histogram, histograms
from warplens.analyse.timeline import Strips, rows_of, strips
from warplens.trace.model import Trace
from warplens.view.adaptive_table import AdaptiveTable
from warplens.view.palette import colours, ink
from warplens.wording import duration, integer

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_LEVELS = " ▁▂▃▄▅▆▇█"
_MAX_ROWS = 48
_HISTOGRAM = 40


def timeline(trace: Trace, *, by: str = "sm", width: int = 120, most: int = _MAX_ROWS) -> RenderableType:
    """Draw rows over time: each cell shows the letter of the region that most warps of the row were in."""
    label_width = max((len(label) for label in rows_of(trace, by).labels), default=0)
    found = strips(trace, by, bins=max(width - label_width - 1, 10), most=most)
    left = len(found.rows.labels) - most
    more = f"{left:,} more rows; select with --sm N or --block N, or show more with --rows {left + most}"
    return draw_strips(found, most, more if left > 0 else "")


def draw_strips(found: Strips, most: int = _MAX_ROWS, more: str = "") -> RenderableType:
    """Draw the first `most` rows of strips; `more` says what is left out."""
    label_width = max(map(len, found.rows.labels), default=0)
    styles = [Style(color=ink(colour), bgcolor=colour) for colour in colours(len(found.regions))]
    marks = letters(found.regions)
    shown = range(min(len(found.rows.labels), most))
    lines = [_ruler(found, label_width), *(_row(found, at, label_width, styles, marks) for at in shown)]
    if more:
        lines.append(Text(more, "dim"))
    return Group(*lines, Text(), _legend(found, styles, marks))


def letters(names: Sequence[str]) -> list[str]:
    """One letter per region, from its name where possible, so that regions can be told apart without colours."""
    letter_of: dict[str, str] = {}
    for name in names:
        wanted = [letter for letter in name + name.upper() if letter.isascii() and letter.isalnum()]
        free = next((letter for letter in (*wanted, *_LETTERS) if letter not in letter_of.values()), "#")
        letter_of[name] = free
    return list(letter_of.values())


def _row(found: Strips, at: int, label_width: int, styles: list[Style], marks: list[str]) -> Text:
    line = Text(found.rows.labels[at].rjust(label_width) + " ", no_wrap=True, overflow="crop")
    for code, cells in groupby(found.dominant[at].tolist()):
        many = len(list(cells))
        line.append(" " * many if code < 0 else marks[code] * many, None if code < 0 else styles[code])
    return line


def _ruler(found: Strips, label_width: int) -> Text:
    step = 16
    offsets = [at * found.bin_ns for at in range(0, found.bins, step)]
    marks = [duration(found.begin + offset) for offset in offsets]
    if len(set(marks)) < len(marks):  # late in a long trace, three digits do not tell them apart
        marks[1:] = [f"+{duration(offset)}" for offset in offsets[1:]]
    text = "".join(f"│{mark}"[:step].ljust(step) for mark in marks)[: found.bins]
    return Text(" " * (label_width + 1) + text, "dim", no_wrap=True, overflow="crop")


def _legend(found: Strips, styles: list[Style], marks: list[str]) -> Text:
    used = [code for code in range(len(found.regions)) if found.time[:, code].any()]
    legend = Text()
    for code in used:
        legend.append(f" {marks[code]} ", styles[code])
        legend.append(f" {found.regions[code]}   ")
    legend.append(f"one cell is {duration(found.bin_ns)}", "dim")
    return legend


def spreads(trace: Trace) -> RenderableType:
    """Draw the distribution of each region's durations, with percentiles."""
    made = {name: found[0] for name, found in histograms(trace, bins=_HISTOGRAM).items()}
    palette = colours(len(trace.regions))
    table = AdaptiveTable(spare=("p99", "max", "min"))
    for name in ("region", "count", "min", "distribution", "max", "p50", "p95", "p99"):
        is_text = name in ("region", "distribution")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=is_text)
    for row in trace.stats(merge_variants=True):
        found = made.get(row.region)
        if found is None:
            continue
        table.add_row(
            Text(row.region),
            f"{row.count:,}",
            f"{row.min:,}",
            Text(_bars(found), Style(color=palette[trace.regions.index(row.region)])),
            f"{row.max:,}",
            *(integer(row[name]) for name in ("p50", "p95", "p99")),
        )
    table.caption = "durations in cycles"
    return table


def _bars(found: Histogram) -> str:
    """One character per bin, as tall as its count; a single span is always visible."""
    most = max(found.counts, default=0) or 1
    return "".join(_LEVELS[-(-count * (len(_LEVELS) - 1) // most)] for count in found.counts)
