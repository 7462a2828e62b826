"""`warplens stats`: how long each region takes."""

from __future__ import annotations

import click
from rich.markup import escape

from warplens.analyse.statistics import GROUPS, Statistics
from warplens.commands.common import cycles, json_option, percent, print_json, read_trace, stdout, table, time_ns
from warplens.commands.trust import warnings_of


@click.command("stats")
@click.argument("trace")
@click.option("--by", default="region", metavar="|".join(GROUPS), help="Group rows by this as well as by region.")
@click.option("--sort", "metric", default=None, metavar="METRIC", help="Sort by a column, for example p95 or mean_ns.")
@click.option("--region", "regions", multiple=True, help="Only these regions (repeatable).")
@click.option("--kernel", "kernels", multiple=True, help="Only these kernels (repeatable).")
@json_option
def command(
    trace: str, by: str, metric: str | None, regions: tuple[str, ...], kernels: tuple[str, ...], as_json: bool
) -> None:
    """Count, total, mean, percentiles and shares of every region in TRACE, in cycles and ns."""
    whole = read_trace(trace)
    part = whole.select(region=list(regions) or None, kernel=list(kernels) or None) if regions or kernels else whole
    result = part.stats(by=by)
    if metric:
        result = result.sorted(metric)
    if as_json:
        print_json(
            result.to_json() | {"losses": whole.meta.to_json()["losses"], "clock": whole.meta.to_json()["clock"]}
        )
        return
    console = stdout()
    console.print(statistics_table(result))
    for line in warnings_of(whole):
        console.print(f"[yellow]{escape(line)}[/]")


def statistics_table(result: Statistics) -> object:
    """The statistics as a rich table."""
    columns = [
        (result.by if result.by != "region" else "", lambda row: escape(row.group)),
        ("region", lambda row: escape(row.region)),
        ("count", lambda row: f"{row.count:,}"),
        ("share", lambda row: percent(row.share)),
        ("exclusive", lambda row: percent(row.exclusive_share)),
        ("mean", lambda row: cycles(row.mean)),
        ("std", lambda row: cycles(row.std)),
        ("p50", lambda row: cycles(row.p50)),
        ("p95", lambda row: cycles(row.p95)),
        ("p99", lambda row: cycles(row.p99)),
        ("min", lambda row: cycles(row.min)),
        ("max", lambda row: cycles(row.max)),
        ("p50 time", lambda row: time_ns(row.p50_ns)),
        ("total time", lambda row: time_ns(row.total_ns)),
    ]
    if result.by == "region":
        columns = columns[1:]
    if any(row.open for row in result):
        columns.append(("open", lambda row: f"{row.open:,}"))
    title = f"durations in cycles; shares of {time_ns(result.busy_ns)} of warp time"
    return table(title, columns, result.rows)
