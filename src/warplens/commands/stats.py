"""`warplens stats`: statistics per region, the region tree, findings and single analyses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click
from rich.markup import escape

from warplens.analyse.analysis_names import ANALYSIS_NAMES
from warplens.analyse.sample_share import sample_line
from warplens.analyse.statistics import GROUPS, Statistics, check_group, check_metric
from warplens.analyse.trace_quality import time_line, warnings_of
from warplens.commands.shared.console import json_option, merge_variants_option, print_json, stdout, working
from warplens.commands.shared.dataset_options import SKETCHED, engine_for, engine_option
from warplens.commands.shared.number_range import number_range
from warplens.commands.shared.rank_options import chosen_ranks, collective_option, ranks_option, read_ranks
from warplens.commands.shared.statistics_tables import print_cautions, statistics_table, value_table
from warplens.errors import UsageError, check_name
from warplens.trace.dataset import RowSelection
from warplens.trace.model import Trace


@click.command("stats")
@click.argument("trace")
@click.option("--by", default="region", metavar="|".join(GROUPS), help="Group by this in addition to the region.")
@click.option("--sort", "metric", metavar="METRIC", help="Sort by this column, such as p95 or mean_ns.")
@click.option("--region", "regions", multiple=True, metavar="NAME", help="Show only this region (repeatable).")
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="NAME",
    help="Show only this kernel (repeatable); losses are those of the whole trace.",
)
@click.option("--tree", "as_tree", is_flag=True, help="Show the tree of regions with total cycles and cycles per warp.")
@click.option(
    "--include", metavar="REGEX", help="With --tree: keep only matching regions, their parents and their children."
)
@click.option("--exclude", metavar="REGEX", help="With --tree: drop matching regions and everything below them.")
@click.option(
    "--depth", type=number_range(int, 0), metavar="N", help="With --tree: show at most N levels.  [default: all]"
)
@click.option(
    "--threshold",
    type=number_range(float, 0, 100),
    metavar="PERCENT",
    help="With --tree: drop regions below this share of warp time.  [default: 0]",
)
@click.option("--findings", "show_findings", is_flag=True, help="Show findings, as `warplens findings` does.")
@click.option(
    "--show", multiple=True, metavar="|".join(ANALYSIS_NAMES), help="Show this analysis as a table (repeatable)."
)
@click.option("--waits", metavar="REGEX", help="With --findings or --show: additional regions to treat as waits.")
@click.option(
    "--ncu",
    metavar="REPORT",
    help="Show findings that include an Nsight Compute report (.csv or .ncu-rep), and its stalls and counters of each "
    "region if it has a source page.",
)
@click.option(
    "--stalls",
    is_flag=True,
    help="Show the stall reasons of each region, if the trace was recorded with `run --stalls`.",
)
@collective_option
@ranks_option
@engine_option
@merge_variants_option
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
    stalls: bool,
    collective: str | None,
    ranks: str | None,
    engine: str | None,
    merge_variants: bool,
    as_json: bool,
) -> None:
    """Show count, total, mean, percentiles and share of warp time of every region in TRACE.

    --tree, --findings and --show replace this table and can be combined.
    """
    check_group(by)
    if metric is not None:
        check_metric(metric)
    for name in show:
        check_name(f"--show {name}: unknown analysis", name, ANALYSIS_NAMES)
    if not as_tree and any(given is not None for given in (include, exclude, depth, threshold)):
        raise UsageError("--include, --exclude, --depth and --threshold need --tree; use --region to filter the table")
    if waits is not None and not (show_findings or ncu or show):
        raise UsageError("--waits needs --findings or --show")
    only_table = not (as_tree or show_findings or show or ncu or stalls)
    if engine is not None and not only_table:
        others = "--tree, --findings, --show, --ncu and --stalls"
        raise UsageError(f"--engine computes the table of statistics; leave out {others}")
    runner, datasets = engine_for([trace], engine) if only_table else (None, [])
    if runner is not None:
        from warplens.engines.queries import dataset_statistics

        chosen = RowSelection.of(region=regions or None, kernel=kernels or None, rank=chosen_ranks(trace, ranks))
        with working(f"reading {trace}"):
            result = dataset_statistics(datasets[0], runner, by, merge_variants=merge_variants, selection=chosen)
            result = result.sorted(metric) if metric else result
        outline = datasets[0].outline()  # it has the document, and no rows
        if not as_json:
            _print_notes([result.sample, time_line(outline), SKETCHED])
            _print_statistics(result)
        _print_rest(result.to_json(), outline, outline, kernels, as_json)
        return
    loaded = read_ranks(trace, ranks)
    whole = loaded.select(kernel=list(kernels)) if kernels else loaded
    part = whole.select(region=list(regions)) if regions else whole
    if not as_json:
        _print_notes([sample_line(part.meta.launches), time_line(part)])
    if only_table:
        with working("analysing"):
            result = part.stats(by=by, merge_variants=merge_variants, corrected=True)
        result = result.sorted(metric) if metric else result
        document = result.to_json()
        if not as_json:
            _print_statistics(result)
    else:
        from warplens.commands.shared.stats_sections import Sections

        sections = Sections(part, whole, trace, as_json, waits, collective)
        if as_tree:
            sections.show_tree(include=include, exclude=exclude, depth=depth, threshold=(threshold or 0.0) / 100)
        if ncu or stalls or show_findings:
            sections.show_facts(ncu, stalls=stalls, findings=show_findings)
        for name in show:
            sections.show_analysis(name)
        document = sections.document
    _print_rest(document, loaded, part, kernels, as_json)


def _print_notes(lines: list[str]) -> None:
    for line in filter(None, lines):
        stdout().print(f"[yellow]{escape(line)}[/]", soft_wrap=True)


def _print_statistics(result: Statistics) -> None:
    console = stdout()
    console.print(statistics_table(result))
    if result.values:
        console.print(value_table(result.values))
    print_cautions(console, result)


def _print_rest(document: dict[str, Any], loaded: Trace, part: Trace, kernels: Collection[str], as_json: bool) -> None:
    """Print the document, or after the tables what was lost."""
    if as_json:
        meta = loaded.meta.to_json()
        more = {"losses": meta["losses"], "clock": meta["clock"], "sample": sample_line(part.meta.launches)}
        print_json(document | more | {"time": time_line(part)})
        return
    lines = warnings_of(loaded)
    if lines and kernels and not set(kernels).issuperset(loaded.kernels):
        # A trace keeps one count of each loss, not one for each kernel.
        lines.insert(0, f"of the whole trace, not only of {', '.join(kernels)}:")
    for line in lines:
        stdout().print(f"[yellow]{escape(line)}[/]")
