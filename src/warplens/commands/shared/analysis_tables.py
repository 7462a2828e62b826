"""Tables of findings, region trees and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from warplens.analyse.analysis import AnswerTable
from warplens.analyse.finding_text import evidence_text, gain_text, place_text
from warplens.analyse.findings import Findings
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.region_tree import RegionNode
from warplens.commands.shared.console import print_hanging, stderr, table
from warplens.trace.model import Trace
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
