"""Tables of statistics, findings and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from warplens.analyse.analysis import AnswerTable
from warplens.analyse.finding import Finding
from warplens.analyse.region_tree import RegionNode
from warplens.analyse.statistics import Statistics
from warplens.commands.shared.console import print_hanging, table
from warplens.wording import duration, integer, percent, plural


def print_findings(console: Console, found: Iterable[Finding]) -> None:
    """Print the findings in order, then those withheld and the reason."""
    listed = list(found)
    sure = [one for one in listed if not one.withheld]
    if not sure:
        console.print("no findings: nothing exceeds the clock error and the profiling overhead")
    several = len({one.kernel for one in listed}) > 1
    for number, one in enumerate(sure, 1):
        gain = f"up to {percent(one.gain)} ({duration(one.gain_ns)} per launch)" if one.gain else "no direct gain"
        kernel = f" [dim]in {escape(one.kernel)}[/]" if several else ""
        console.print(f"[bold]{number}. {escape(one.kind)}[/]{kernel}: [green]{gain}[/]", soft_wrap=True)
        print_hanging(console, "   ", escape(one.what))
        print_hanging(console, "   [cyan]try:[/] ", escape(one.advice))
    for one in listed:
        if one.withheld:
            print_hanging(console, "", f"[dim]withheld ({escape(one.kind)}): {escape(one.withheld)}[/]")


def statistics_table(result: Statistics) -> object:
    """Build the table of statistics per region."""
    columns = [
        (result.heading, lambda row: escape(row.variant or row.group)),
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
    if not result.heading:
        columns = columns[1:]
    if any(row.corrected == row.corrected for row in result):
        place = next(at for at, (name, _) in enumerate(columns) if name == "std")
        columns.insert(place, ("without marks", _corrected))
    if any(row.purity == row.purity for row in result):
        columns.append(("purity", lambda row: "-" if row.purity != row.purity else percent(row.purity)))
    if any(row.open for row in result):
        columns.append(("open", lambda row: f"{row.open:,}"))
    title = f"durations in cycles; shares of {duration(result.busy_ns)} of warp time"
    return table(title, columns, result.rows, spare=("std", "min", "max", "p99", "exclusive", "total time", "mean"))


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


def tree_view(roots: Iterable[RegionNode]) -> Tree:
    """Build the region tree, in the style of Proton: cycles per warp, cycles, share, count and name."""
    out = Tree("normalised cycles (per warp) · cycles · share of warp time · count · region", hide_root=False)
    for root in roots:
        _add(out, root, plural(root.count, "launch"))
    return out


def _add(parent: Tree, node: RegionNode, count: str) -> None:
    text = Text.assemble(
        (f"{node.normalized:,.0f}", "bold"), f" · {node.cycles:,} · ", (percent(node.share), "green"), f" · {count} · "
    )
    branch = parent.add(text.append(node.name, "bold"))
    for child in node.children:
        _add(branch, child, f"{child.count:,}")


def answer_table(answer: AnswerTable) -> object:
    """The answer of an analysis as a rich table."""
    columns = [(escape(name), _cell(at)) for at, name in enumerate(answer.columns)]
    return table(escape(answer.title), columns, answer.rows)


def _cell(at: int) -> Callable[[Sequence[str]], str]:
    return lambda row: escape(row[at])


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
