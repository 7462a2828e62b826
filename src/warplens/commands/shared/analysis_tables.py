"""Tables of statistics, findings and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from warplens.analyse.analysis import AnswerTable
from warplens.analyse.finding_text import evidence_text, gain_text, place_text
from warplens.analyse.findings import Findings
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.region_tree import RegionNode
from warplens.analyse.statistics import Statistics
from warplens.analyse.value_statistics import ValueStatistics
from warplens.commands.shared.console import print_hanging, stderr, table
from warplens.trace.model import Trace
from warplens.wording import digits, duration, integer, percent, plural


def print_findings(console: Console, found: Findings, refuted: bool = False) -> None:
    """Print the findings in order, each with its consequences; then the undecided, withheld and, if asked, refuted."""
    if not len(found):
        console.print("no findings: nothing exceeds the clock error and the profiling overhead")
    several = len({one.kernel for part in (found.supported, found.undecided) for one in part}) > 1
    for number, one in enumerate(found, 1):
        kernel = f" [dim]in {escape(one.kernel)}[/]" if several else ""
        gain = f"[green]{gain_text(one)}[/], confidence {one.confidence}"
        print_hanging(console, f"[bold]{number}. {escape(one.kind)}[/]{kernel}: ", gain)
        print_hanging(console, "   ", escape(one.what))
        if place_text(one):
            print_hanging(console, "   [dim]where:[/] ", escape(place_text(one)))
        print_hanging(console, "   [dim]evidence:[/] ", escape(evidence_text(one)))
        if one.caution:
            print_hanging(console, "   [yellow]caution:[/] ", escape(one.caution))
        print_hanging(console, "   [cyan]try:[/] ", escape(one.advice))
        if one.refuted_by:
            print_hanging(console, "   [dim]refuted by:[/] ", escape(one.refuted_by))
        for below in one.consequences:
            print_hanging(console, f"   [dim]explains {escape(below.kind)}:[/] ", escape(below.what))
    for one in found.undecided:
        kernel = f" in {escape(one.kernel)}" if several else ""
        print_hanging(
            console, f"[yellow]undecided[/] ({escape(one.kind)}{kernel}): ", f"{escape(one.what)} {escape(one.advice)}"
        )
    for one in found.withheld:
        print_hanging(console, "", f"[dim]withheld ({escape(one.kind)}): {escape(one.withheld)}[/]")
    for one in found.refuted if refuted else ():
        print_hanging(console, "", f"[dim]refuted ({escape(one.kind)}): {escape(one.what)}[/]")


def print_unknown_overhead(trace: Trace) -> None:
    """Say that findings are not filtered for the profiling overhead where it was not measured."""
    if any(profiling_cost(trace, kernel) is None for kernel in trace.kernels):
        stderr().print("[dim]Profiling overhead was not measured; findings are not filtered for it.[/]")


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
    whose = "each kernel's" if result.heading == "variant" else duration(result.busy_ns) + " of"
    title = f"durations in cycles; shares of {whose} warp time"
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
