"""Tables of stalls and counters: per region, and per kernel of an Nsight Compute report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape

from warplens.analyse.region_counters import PC_SAMPLING, AttributedPages, RegionCounters
from warplens.commands.shared.console import print_hanging, table
from warplens.wording import percent

_SAMPLED_COLUMNS = 4
"""Samples have no counters, so the columns after these would be empty."""
_STALLS = 3
"""Reasons that the table names of each region."""


def print_counters(console: Console, found: AttributedPages) -> None:
    """Print one table per kernel and basis, and what could not be attributed."""
    groups: dict[str, list[RegionCounters]] = {}
    for one in found.regions:
        groups.setdefault(f"{one.kernel}: {one.source}, {one.basis}", []).append(one)
    for title, rows in groups.items():
        console.print(counter_table(title, rows))
    for note in found.notes:
        print_hanging(console, "[yellow]![/] ", escape(note))


def counter_table(title: str, rows: list[RegionCounters]) -> object:
    """Build the table of one kernel's regions."""
    columns = [
        ("region", lambda row: escape(row.region)),
        ("samples", lambda row: f"{row.samples:,.0f}"),
        ("share", lambda row: percent(row.share)),
        ("stalled by", lambda row: escape(stalls_text(row))),
        ("executed", lambda row: f"{row.executed:,.0f}"),
        ("sectors", lambda row: f"{row.sectors:,.0f}"),
        ("conflicts", lambda row: f"{row.conflicts:,.0f}"),
        ("bytes", lambda row: f"{row.bytes:,.0f}"),
        ("flops", lambda row: f"{row.flops:,.0f}"),
    ]
    if all(row.source == PC_SAMPLING for row in rows):
        columns = columns[:_SAMPLED_COLUMNS]
    return table(escape(title), columns, rows, spare=("bytes", "flops", "conflicts", "sectors"))


def stalls_text(row: RegionCounters) -> str:
    """The most frequent reasons with their shares of the region's samples."""
    return ", ".join(f"{reason} {percent(share)}" for reason, share in list(row.stall_shares.items())[:_STALLS])


def ncu_table(kernels: Iterable[Any]) -> object:
    """Build the table of an Nsight Compute report, one row per kernel."""

    def share(name: str) -> Callable[[Any], str]:
        return lambda one: "-" if getattr(one, name) is None else percent(getattr(one, name))

    def stalls(one: Any) -> str:
        return ", ".join(f"{name} {percent(part)}" for name, part in list(one.groups.items())[:3] if part) or "-"

    columns = [
        ("kernel", lambda one: escape(one.kernel[:40])),
        ("bound", lambda one: one.bound),
        ("memory", share("memory")),
        ("compute", share("compute")),
        ("occupancy", share("achieved")),
        ("theoretical", share("theoretical")),
        ("limiter", lambda one: one.limiter or "-"),
        ("stalls", stalls),
    ]
    return table("Nsight Compute: share of peak, occupancy and stalls", columns, list(kernels))
