"""What analyses say, as rich tables and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from warplens.analyse.finding import Finding
from warplens.analyse.tree import Node
from warplens.commands.common import print_hanging, table
from warplens.wording import duration, integer, percent, plural


def print_findings(console: Console, found: Iterable[Finding]) -> None:
    """Ranked statements, then what was withheld and why."""
    listed = list(found)
    sure = [one for one in listed if not one.withheld]
    if not sure:
        console.print("no findings: nothing stands out above the clock's error and the profiler's own cost")
    several = len({one.kernel for one in listed}) > 1
    for number, one in enumerate(sure, 1):
        gain = f"up to {percent(one.gain)} ({duration(one.gain_ns)} per launch)" if one.gain else "no gain by itself"
        kernel = f" [dim]in {escape(one.kernel)}[/]" if several else ""
        console.print(f"[bold]{number}. {escape(one.kind)}[/]{kernel}: [green]{gain}[/]", soft_wrap=True)
        print_hanging(console, "   ", escape(one.what))
        print_hanging(console, "   [cyan]try:[/] ", escape(one.advice))
    for one in listed:
        if one.withheld:
            print_hanging(console, "", f"[dim]withheld ({escape(one.kind)}): {escape(one.withheld)}[/]")


def tree_view(roots: Iterable[Node]) -> Tree:
    """Proton's tree: normalised cycles (per warp), cycles, share, count and name."""
    out = Tree("normalised cycles (per warp) · cycles · share of warp time · count · region", hide_root=False)
    for root in roots:
        _add(out, root, plural(root.count, "launch"))
    return out


def _add(parent: Tree, node: Node, count: str) -> None:
    text = Text.assemble(
        (f"{node.normalized:,.0f}", "bold"), f" · {node.cycles:,} · ", (percent(node.share), "green"), f" · {count} · "
    )
    branch = parent.add(text.append(node.name, "bold"))
    for child in node.children:
        _add(branch, child, f"{child.count:,}")


def _text(value: Any) -> str:
    return escape(str(value))


def _region_rows(title: str, rows: Iterable[Any], *columns: tuple[str, Callable[[Any], str]]) -> object:
    return table(title, [("region", lambda row: _text(row.region)), *columns], list(rows))


def overlap_table(kernel: str, one: Any) -> object:
    title = (
        f"{kernel}: of the SM time {percent(one.waiting)} all wait, {percent(one.memory_exposed)} memory without work, "
        f"{percent(one.work_exposed)} work without memory; {percent(one.hidden)} of memory time is under work"
    )
    if one.pipeline:
        title += f"; {one.pipeline.mean:.1f} loads in flight (most {one.pipeline.most:.1f})"
    names = [row.region for row in one.regions]
    columns = [
        ("purpose", lambda row: row.purpose),
        ("active", lambda row: percent(row.active)),
        ("alone", lambda row: percent(row.alone)),
        ("exposed", lambda row: percent(row.exposed)),
    ]
    for at, name in enumerate(names[:8]):
        columns.append((f"with {escape(name)}", _together(one, names, at)))
    return _region_rows(title, one.regions, *columns)


def _together(one: Any, names: list[str], at: int) -> Callable[[Any], str]:
    return lambda row: percent(one.together[names.index(row.region)][at])


def _gain(faster: float) -> Callable[[Any], str]:
    return lambda row: percent(row.gain[faster])


def waits_table(kernel: str, one: Any) -> object:
    title = f"{kernel}: {percent(one.share)} of warp time waits"
    if one.producer or one.consumer:
        title += f" (producers {percent(one.producer)}, consumers {percent(one.consumer)})"
    return _region_rows(
        title,
        one.regions,
        ("share", lambda row: percent(row.share)),
        ("waits for", lambda row: ", ".join(f"{_text(n)} {percent(s)}" for n, s in list(row.waits_for.items())[:3])),
        ("matched by values", lambda row: percent(row.by_key)),
    )


def path_table(kernel: str, one: Any) -> object:
    title = (
        f"{kernel}: critical path {duration(one.length_ns)}; outside regions {duration(one.unmarked_ns)}, "
        f"between blocks {duration(one.between_ns)}, launch {duration(one.launch_ns)}"
    )
    columns = [
        ("on path", lambda row: duration(row.ns)),
        ("share", lambda row: percent(row.share)),
        ("slack", lambda row: duration(row.slack_ns)),
    ]
    shares = list(one.regions[0].gain) if one.regions else []
    for faster in shares:
        name = "free" if faster == 1 else f"{round(100 * faster)} % faster"
        columns.append((f"if {name}", _gain(faster)))
    return _region_rows(title, one.regions, *columns)


def modes_table(kernel: str, one: Any) -> object:
    return _region_rows(
        f"{kernel}: shapes, in cycles",
        one.regions,
        ("count", lambda row: f"{row.count:,}"),
        ("p50", lambda row: integer(row.p50)),
        ("two speeds", _two_speeds),
        ("first", lambda row: integer(row.first)),
        ("later", lambda row: integer(row.later) if row.later else "-"),
        ("drift", lambda row: percent(row.drift)),
        ("outliers", lambda row: f"{row.outliers:,}"),
    )


def _two_speeds(row: Any) -> str:
    two = row.modes
    return f"{two.fast:,.0f} / {two.slow:,.0f} ({percent(two.slow_share)} slow)" if two else "-"


def _facts(kernel: str, pairs: list[tuple[str, str]]) -> object:
    return table(kernel, [("", lambda pair: _text(pair[0])), ("", lambda pair: _text(pair[1]))], pairs)


def imbalance_table(kernel: str, one: Any) -> object:
    pairs = [
        ("median block", duration(one.block_median_ns)),
        ("longest block over the mean", f"{one.block_factor:.2f}"),
        ("late blocks", ", ".join(map(str, one.late_blocks[:12])) or "none"),
        ("SM time idle at the end", percent(one.sm_loss)),
        ("slow SMs", ", ".join(map(str, one.slow_sms[:12])) or "none"),
    ]
    for balance in one.roles:
        factor = f"{balance.factor:.2f} ({percent(balance.loss)} lost)"
        pairs.append((f"{balance.role.name}: busiest over mean", factor))
    return _facts(f"{kernel}: balance", pairs)


def waves_table(kernel: str, one: Any) -> object:
    return _facts(
        f"{kernel}: waves",
        [
            ("blocks", f"{one.blocks:,} on {one.sms} SMs, {one.slots} at once on each"),
            ("waves", f"{one.waves:.2f}"),
            ("SM time without a block", percent(one.idle)),
            ("  on SMs never used", percent(one.unused)),
            ("  before the first block", percent(one.ramp)),
            ("  between blocks", percent(one.gaps)),
            ("  after the last block", percent(one.tail)),
            ("  of it for the number of blocks", percent(one.quantised)),
        ],
    )


def ramp_table(kernel: str, one: Any) -> object:
    return _facts(
        f"{kernel}: ramp",
        [
            ("useful regions", ", ".join(one.useful[:6])),
            ("launch to the first of them", f"{duration(one.to_first_ns)} ({percent(one.to_first)})"),
            ("prologue of a block", f"{duration(one.prologue_ns)} ({percent(one.prologue)})"),
            ("epilogue of a block", f"{duration(one.epilogue_ns)} ({percent(one.epilogue)})"),
            ("SM time in edges only", percent(one.exposed)),
            ("warp time before and after all marks", percent(one.unmarked)),
        ],
    )


def clock_table(kernel: str, one: Any) -> object:
    return _facts(
        f"{kernel}: clock",
        [
            ("MHz, lowest to highest", f"{one.mhz_min:,.0f} to {one.mhz_max:,.0f} (mean {one.mhz_mean:,.0f})"),
            ("error of times", f"{duration(one.error_ns)} of {duration(one.kernel_ns)}"),
            ("regions shorter than that", ", ".join(one.blurred[:6]) or "none"),
        ],
    )


def occupancy_table(kernel: str, one: Any) -> object:
    share = f" ({percent(one.share)} of the slots)" if one.share else ""
    pairs = [("warps alive per SM", f"{one.warps:.1f}{share}")]
    if one.theoretical:
        could = f"{one.theoretical.warps} ({percent(one.theoretical.share)}), limited by"
        pairs.append(("could be", f"{could} {' and '.join(one.theoretical.limiters)}"))
        pairs.append(("to lift it", one.theoretical.lift))
    return _facts(f"{kernel}: occupancy", pairs)


def ncu_table(kernels: Iterable[Any]) -> object:
    """What Nsight Compute measured, one line per kernel."""

    def share(name: str) -> Callable[[Any], str]:
        return lambda one: "-" if getattr(one, name) is None else percent(getattr(one, name))

    def stalls(one: Any) -> str:
        return ", ".join(f"{name} {percent(part)}" for name, part in list(one.groups.items())[:3] if part) or "-"

    columns = [
        ("kernel", lambda one: _text(one.kernel[:40])),
        ("bound", lambda one: one.bound),
        ("memory", share("memory")),
        ("compute", share("compute")),
        ("occupancy", share("achieved")),
        ("of possible", share("theoretical")),
        ("limiter", lambda one: one.limiter or "-"),
        ("stalls", stalls),
    ]
    return table("Nsight Compute: shares of peak, warp slots and stalled cycles", columns, list(kernels))
