"""`warplens stats`: how long each region takes, the tree of regions, and what stands out."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from warplens.analyse.analysis import Answers
from warplens.analyse.region_tree import prune_tree, region_tree
from warplens.analyse.registry import ANALYSES
from warplens.analyse.statistics import GROUPS, Statistics
from warplens.analyse.trace_quality import warnings_of
from warplens.commands import tables
from warplens.commands.common import json_option, print_json, read_trace, stderr, stdout, table, working
from warplens.errors import UsageError, did_you_mean
from warplens.trace.model import Trace
from warplens.wording import duration, integer, percent


@click.command("stats")
@click.argument("trace")
@click.option("--by", default="region", metavar="|".join(GROUPS), help="Group rows by this as well as by region.")
@click.option("--sort", "metric", default=None, metavar="METRIC", help="Sort by a column, for example p95 or mean_ns.")
@click.option("--region", "regions", multiple=True, help="Only these regions (repeatable).")
@click.option("--kernel", "kernels", multiple=True, help="Only these kernels (repeatable).")
@click.option("--tree", "as_tree", is_flag=True, help="The tree of regions with cycles and normalised cycles.")
@click.option("--include", default=None, metavar="REGEX", help="Tree: keep what matches, its parents and children.")
@click.option("--exclude", default=None, metavar="REGEX", help="Tree: drop what matches and all below it.")
@click.option("--depth", default=None, type=click.IntRange(0), metavar="N", help="Tree: at most N levels of regions.")
@click.option(
    "--threshold",
    default=None,
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Tree: drop what is below this share of warp time.",
)
@click.option("--findings", "show_findings", is_flag=True, help="What stands out, ranked, with what to try.")
@click.option("--show", multiple=True, metavar="|".join(ANALYSES), help="One analysis as a table (repeatable).")
@click.option("--waits", default=None, metavar="REGEX", help="Regions that only wait, besides those named so.")
@click.option("--ncu", default=None, metavar="REPORT", help="Merge Nsight Compute's report (.csv or .ncu-rep).")
@json_option
def command(
    trace: str,
    by: str,
    metric: str | None,
    regions: tuple[str, ...],
    kernels: tuple[str, ...],
    as_tree: bool,
    include: str | None,
    exclude: str | None,
    depth: int | None,
    threshold: float | None,
    show_findings: bool,
    show: tuple[str, ...],
    waits: str | None,
    ncu: str | None,
    as_json: bool,
) -> None:
    """Count, total, mean, percentiles and shares of every region in TRACE; its tree; its findings."""
    for name in show:
        if name not in ANALYSES:
            raise UsageError(f"--show {name}: no such analysis{did_you_mean(name, ANALYSES)}")
    if not as_tree and any(given is not None for given in (include, exclude, depth, threshold)):
        raise UsageError(
            "--include, --exclude, --depth and --threshold go with --tree; --region picks rows of the table"
        )
    if waits is not None and not (show_findings or ncu or show):
        raise UsageError("--waits goes with --findings or --show")
    whole = read_trace(trace)
    part = whole.select(region=list(regions) or None, kernel=list(kernels) or None) if regions or kernels else whole
    console = stdout()
    answers = Answers(part, waits)
    document: dict[str, Any] = {}
    if as_tree:
        roots = prune_tree(
            region_tree(part), include=include, exclude=exclude, depth=depth, threshold=(threshold or 0.0) / 100
        )
        document["tree"] = [root.to_json() for root in roots]
        if not as_json:
            console.print(tables.tree_view(roots))
    if show_findings or ncu:
        found = _findings(answers, ncu)
        document["findings"] = [one.to_json() for one in found]
        if not as_json:
            tables.print_findings(console, found)
            _say_what_is_unknown(part)
    for name in show:
        answer = answers.of(ANALYSES[name])
        document.setdefault("analyses", {})[name] = answer.to_json()
        if not as_json:
            for kernel, one in answer.kernels.items():
                console.print(tables.answer_table(ANALYSES[name].table(kernel, one)))
    if not document:
        result = part.stats(by=by)
        result = result.sorted(metric) if metric else result
        document = result.to_json()
        if not as_json:
            console.print(statistics_table(result))
    if as_json:
        meta = whole.meta.to_json()
        print_json(document | {"losses": meta["losses"], "clock": meta["clock"]})
        return
    for line in warnings_of(whole):
        console.print(f"[yellow]{escape(line)}[/]")


def _findings(answers: Answers, ncu: str | None) -> Any:
    from warplens.analyse.findings import findings_from
    from warplens.analyse.ncu import ncu_findings
    from warplens.runner.nsight_compute import read_ncu

    extra = ncu_findings(read_ncu(ncu), answers.trace.kernels) if ncu else ()
    with working("looking for what stands out"):
        return findings_from(answers, extra)


def _say_what_is_unknown(trace: Trace) -> None:
    from warplens.analyse.findings import profiling_cost

    if any(profiling_cost(trace, kernel) is None for kernel in trace.kernels):
        stderr().print("[dim]what profiling itself cost was not measured, so nothing was withheld for it[/]")


def statistics_table(result: Statistics) -> object:
    """The statistics as a rich table."""
    columns = [
        (result.by if result.by != "region" else "", lambda row: escape(row.group)),
        ("region", lambda row: escape(row.region)),
        ("count", lambda row: f"{row.count:,}"),
        ("share", lambda row: percent(row.share)),
        ("exclusive", lambda row: percent(row.exclusive_share)),
        ("mean", lambda row: integer(row.mean)),
        ("std", lambda row: integer(row.std)),
        ("p50", lambda row: integer(row.p50)),
        ("p95", lambda row: integer(row.p95)),
        ("p99", lambda row: integer(row.p99)),
        ("min", lambda row: integer(row.min)),
        ("max", lambda row: integer(row.max)),
        ("p50 time", lambda row: duration(row.p50_ns)),
        ("total time", lambda row: duration(row.total_ns)),
    ]
    if result.by == "region":
        columns = columns[1:]
    if any(row.open for row in result):
        columns.append(("open", lambda row: f"{row.open:,}"))
    title = f"durations in cycles; shares of {duration(result.busy_ns)} of warp time"
    return table(title, columns, result.rows, spare=("std", "min", "max", "p99", "exclusive", "total time", "mean"))
