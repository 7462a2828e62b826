"""Tables of statistics: of regions, and of recorded values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from warplens.analyse.statistics import Statistics
from warplens.analyse.value_statistics import ValueStatistics
from warplens.commands.shared.console import print_hanging, table
from warplens.wording import digits, duration, integer, percent


def statistics_table(result: Statistics) -> object:
    """Build the table of statistics per region."""
    columns = [
        (result.heading, lambda row: escape(row.variant or row.group)),
        ("region", lambda row: escape(row.region)),
        ("count", lambda row: f"{row.count:,}"),
        ("share", lambda row: percent(row.share)),
        ("exclusive", lambda row: percent(row.exclusive_share)),
        *((name, _measured(name, integer)) for name in ("mean", "std", "p50", "p95", "p99", "min", "max")),
        ("p50 time", _measured("p50_ns", duration)),
        ("total time", lambda row: duration(row.total_ns)),
    ]
    if not result.heading:
        columns = columns[1:]
    if any(row.corrected == row.corrected for row in result):
        place = next(at for at, (name, _) in enumerate(columns) if name == "std")
        columns.insert(place, ("without marks", _corrected))
    if any(row.purity == row.purity for row in result):
        columns.append(("purity", lambda row: "-" if row.purity != row.purity else percent(row.purity)))
    if any(row.open for row in result):
        columns.append(("open", lambda row: f"{row.open:,}"))
    whose = "each kernel's" if result.heading == "variant" else duration(result.busy_ns) + " of"
    title = f"durations in cycles; shares of {whose} warp time"
    return table(title, columns, result.rows, spare=("std", "min", "max", "p99", "exclusive", "total time", "mean"))


def _measured(name: str, text: Callable[[float], str]) -> Callable[[Any], str]:
    """A column of durations. A region whose spans are all open has none."""
    return lambda row: text(row[name]) if row.count else "-"


def _corrected(row: Any) -> str:
    """A mean without its marks, and the interval that holds it."""
    if row.corrected != row.corrected:
        return "-"
    return f"{integer(row.corrected)} ({integer(row.corrected_low)} to {integer(row.corrected_high)})"


def print_cautions(console: Console, result: Statistics) -> None:
    """Name the regions that did not time what they mark."""
    told = {(row.region, row.moved_out) for row in result if row.moved_out}
    for region, flag in sorted(told):
        print_hanging(console, "[yellow]![/] ", f"[bold]{escape(region)}[/] did not time what it marks: {escape(flag)}")


def value_table(values: Sequence[ValueStatistics]) -> object:
    """Build the table of recorded values and instants."""

    def number(name: str) -> Callable[[ValueStatistics], str]:
        return lambda one: "-" if (found := getattr(one, name)) is None else digits(found)

    columns: list[tuple[str, Callable[[ValueStatistics], str]]] = [
        ("kernel", lambda one: escape(one.kernel)),
        ("region", lambda one: escape(one.name)),
        ("kind", lambda one: one.kind),
        ("count", lambda one: f"{one.count:,}"),
        *((name, number(name)) for name in ("mean", "std", "p50", "min", "max")),
    ]
    if any(one.not_finite for one in values):
        columns.append(("NaN or Inf", lambda one: f"{one.not_finite:,}"))
    return table("values and instants", columns, values, spare=("std", "p50", "kernel"))
