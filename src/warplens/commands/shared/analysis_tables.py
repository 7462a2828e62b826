"""Tables of findings, region trees and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.markup import escape

from warplens.analyse.analysis import AnswerTable
from warplens.analyse.finding import Finding
from warplens.analyse.finding_text import evidence_text, gain_text, place_text
from warplens.analyse.findings import Findings
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.region_tree import RegionNode
from warplens.commands.shared.console import print_hanging, stderr, table
from warplens.trace.model import Trace
from warplens.view.adaptive_table import AdaptiveTable
from warplens.wording import first_of, percent, plural


def print_findings(console: Console, found: Findings, refuted: bool = False) -> None:
    """Print the findings in order, each with its consequences; then the undecided, withheld and, if asked, refuted.

    What is the same of several kernels is printed once, with their names.
    """
    if not len(found):
        console.print("no findings: nothing exceeds the clock error and the profiling overhead")
    parts = (found.supported, found.undecided, found.withheld, found.refuted if refuted else ())
    several = len({one.kernel for part in parts for one in part}) > 1
    for number, (one, kernels) in enumerate(_alike(found, _details), 1):
        where = f" [dim]in {escape(kernels)}[/]" if several else ""
        gain = f"[green]{gain_text(one)}[/], confidence {one.confidence}"
        print_hanging(console, f"[bold]{number}. {escape(one.kind)}[/]{where}: ", gain)
        for label, text in _details(one):
            print_hanging(console, f"   {label}", text)
    undecided = _alike(found.undecided, lambda one: f"{one.what} {one.advice}")
    withheld = _alike(found.withheld, lambda one: str(one.withheld))
    for one, kernels in undecided:
        where = f" in {escape(kernels)}" if several else ""
        text = f"{escape(one.what)} {escape(one.advice)}"
        print_hanging(console, f"[yellow]undecided[/] ({escape(one.kind)}{where}): ", text)
    for one, kernels in withheld:
        where = f" in {escape(kernels)}" if several else ""
        print_hanging(console, "", f"[dim]withheld ({escape(one.kind)}{where}): {escape(one.withheld)}[/]")
    for one, kernels in _alike(parts[-1], lambda one: one.what):
        where = f" in {escape(kernels)}" if several else ""
        print_hanging(console, "", f"[dim]refuted ({escape(one.kind)}{where}): {escape(one.what)}[/]")


def _details(one: Finding) -> tuple[tuple[str, str], ...]:
    """What is printed below the heading of a finding, with the label of each line."""
    lines = [
        ("", one.what),
        ("[dim]where:[/] ", place_text(one)),
        ("[dim]evidence:[/] ", evidence_text(one)),
        ("[yellow]caution:[/] ", one.caution),
        ("[cyan]try:[/] ", one.advice),
        ("[dim]refuted by:[/] ", one.refuted_by),
        *((f"[dim]explains {escape(below.kind)}:[/] ", below.what) for below in one.consequences),
    ]
    return tuple((label, escape(text)) for label, text in lines if text)


def _alike(found: Iterable[Finding], text: Callable[[Finding], object]) -> Iterable[tuple[Finding, str]]:
    """Findings that read the same once, in order, each with the names of its kernels."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in found:
        groups.setdefault((one.kind, gain_text(one), one.confidence, text(one)), []).append(one)
    for same in groups.values():
        kernels = [one.kernel for one in same]
        yield same[0], kernels[0] if len(kernels) == 1 else f"{plural(len(kernels), 'kernel')} ({first_of(kernels)})"


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
