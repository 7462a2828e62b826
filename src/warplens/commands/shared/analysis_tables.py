"""Tables of findings, region trees and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.markup import escape

from warplens.analyse.analysis import AnswerTable
from warplens.analyse.finding_text import evidence_text, gain_text, place_text
from warplens.analyse.findings import Findings
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.region_tree import RegionNode
from warplens.commands.shared.console import print_hanging, stderr, table
from warplens.trace.model import Trace
from warplens.view.adaptive_table import AdaptiveTable
from warplens.wording import percent, plural


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


_INDENTED_LEVELS = 8
"""Deeper levels stand below each other with their number, so that names stay readable."""


def tree_table(roots: Iterable[RegionNode]) -> AdaptiveTable:
    """Build the table of the region tree: parents first, each level further to the right."""
    rows = [row for root in roots for row in root.walk()]
    return table(
        "",
        [
            ("region", _indented),
            ("cycles per warp", lambda row: f"{row[1].normalized:,.0f}"),
            ("cycles", lambda row: f"{row[1].cycles:,}"),
            ("share", lambda row: percent(row[1].share)),
            ("count", lambda row: f"{row[1].count:,}" if row[0] else plural(row[1].count, "launch")),
        ],
        rows,
    )


def _indented(row: tuple[int, RegionNode]) -> str:
    level, node = row
    number = f"{level}: " if level > _INDENTED_LEVELS else ""
    return f"{'  ' * min(level, _INDENTED_LEVELS)}{number}{escape(node.name)}"


def answer_table(answer: AnswerTable) -> object:
    """The answer of an analysis as a rich table."""
    columns = [(escape(name), _cell(at)) for at, name in enumerate(answer.columns)]
    return table(escape(answer.title), columns, answer.rows)


def _cell(at: int) -> Callable[[Sequence[str]], str]:
    return lambda row: escape(row[at])
