"""Tables of a verification: what the machine code holds in each region, and what the marks cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from warplens.analyse.mark_cost import VariantCost
from warplens.commands.shared.console import print_hanging, table
from warplens.sass.opcode_classes import CLASSES
from warplens.sass.verified_regions import KernelVerification, RegionCode
from warplens.wording import percent, plural


def print_verification(console: Console, one: KernelVerification, *, moved: bool = False) -> None:
    """Print one kernel: its size, a table of its regions, flags, and on request what was moved."""
    if one.problem:
        print_hanging(console, f"[bold]{escape(one.kernel)}[/]: ", f"[yellow]not verified: {escape(one.problem)}[/]")
        return
    share = one.own / one.instructions if one.instructions else 0.0
    console.print(
        f"[bold]{escape(one.kernel)}[/]: {plural(one.instructions, 'instruction')}, {one.own:,} of them warplens's "
        f"({percent(share)}); read from {escape(one.source or 'a cubin')}",
        soft_wrap=True,
    )
    console.print(region_table(one.regions))
    for region in one.regions:
        if region.flag:
            print_hanging(console, "  [yellow]![/] ", f"[bold]{escape(region.region)}[/]: {escape(region.flag)}")
    for name in one.missing:
        print_hanging(console, "  [yellow]![/] ", f"[bold]{escape(name)}[/]: its marks are not in the machine code")
    if moved:
        _print_moved(console, one.regions)


def region_table(regions: Sequence[RegionCode]) -> object:
    """Build the table of regions: purity, instructions and classes."""
    columns = [
        ("region", lambda row: escape(row.region)),
        ("purity", lambda row: percent(row.purity)),
        ("complete", lambda row: percent(row.complete)),
        ("inside", lambda row: f"{row.inside:,}"),
        ("moved in", lambda row: f"{row.moved_in:,}"),
        ("moved out", lambda row: f"{row.moved_out:,}"),
        ("warplens", lambda row: f"{row.own:,}"),
        ("copies", lambda row: f"{row.copies:,}"),
        ("holds", lambda row: classes_text(row.counts)),
    ]
    return table("instructions between the marks of each region", columns, regions, spare=("copies", "warplens"))


def classes_text(counts: Mapping[str, int]) -> str:
    """Counts by class in words, in the order of the classes."""
    return ", ".join(f"{kind} {counts[kind]:,}" for kind in CLASSES if counts.get(kind))


def _print_moved(console: Console, regions: Sequence[RegionCode]) -> None:
    for region in regions:
        for one in region.moved:
            where = {"inside": "moved in", "before": "moved out, before", "after": "moved out, after"}[one.where]
            owner = f" (belongs to {escape(one.belongs)})" if one.belongs else ""
            line = f"{where}: 0x{one.address:04x} {escape(one.text)}{owner}"
            console.print(f"    [dim]{escape(region.region)}[/] {line}", soft_wrap=True)


def cost_table(costs: Sequence[VariantCost]) -> object:
    """Build the table of what each variant pays for its marks."""

    def pair(now: int | None, plain: int | None) -> str:
        known = "-" if now is None else f"{now:,}"
        return known if plain is None else f"{known} ({plain:,} plain)"

    columns = [
        ("variant", lambda one: escape(one.label)),
        ("slowdown", lambda one: "-" if one.slowdown is None else str(one.slowdown)),
        ("registers", lambda one: pair(one.registers, one.registers_plain)),
        ("spill bytes", lambda one: pair(one.spills, None)),
        ("blocks per SM", lambda one: pair(one.blocks, one.blocks_plain)),
        ("instructions added", lambda one: "-" if one.own is None else f"{one.own:,} of {one.instructions:,}"),
    ]
    return table("what the marks cost", columns, costs)
