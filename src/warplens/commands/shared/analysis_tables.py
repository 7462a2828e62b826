"""Tables of statistics, findings and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from warplens.analyse.finding import Finding
from warplens.analyse.statistics import Statistics
from warplens.analyse.tree import Node
from warplens.analyse.trust import plural
from warplens.commands.shared.console import cycles, percent, print_hanging, table, time_ns


def print_findings(console: Console, found: Iterable[Finding]) -> None:
    """Print the findings in order, then those withheld and the reason."""
    listed = list(found)
    sure = [one for one in listed if not one.withheld]
    if not sure:
        console.print("no findings: nothing exceeds the clock error and the profiling overhead")
    several = len({one.kernel for one in listed}) > 1
    for number, one in enumerate(sure, 1):
        gain = f"up to {percent(one.gain)} ({time_ns(one.gain_ns)} per launch)" if one.gain else "no direct gain"
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
    return table(title, columns, result.rows, spare=("std", "min", "max", "p99", "exclusive", "total time", "mean"))


def tree_view(roots: Iterable[Node]) -> Tree:
    """Build the region tree, in the style of Proton: cycles per warp, cycles, share, count and name."""
    out = Tree("normalised cycles (per warp) · cycles · share of warp time · count · region", hide_root=False)
    for root in roots:
        _add(out, root, plural(root.count, "launch").replace("launchs", "launches"))
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
        f"{kernel}: SM time {percent(one.waiting)} all warps waiting, {percent(one.memory_exposed)} memory only, "
        f"{percent(one.work_exposed)} compute only; {percent(one.hidden)} of memory time overlaps compute"
    )
    if one.pipeline:
        title += f"; {one.pipeline.mean:.1f} loads in flight (max {one.pipeline.most:.1f})"
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
    title = f"{kernel}: {percent(one.share)} of warp time is spent waiting"
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
        f"{kernel}: critical path {time_ns(one.length_ns)}; outside regions {time_ns(one.unmarked_ns)}, between blocks "
        f"{time_ns(one.between_ns)}, launch {time_ns(one.launch_ns)}"
    )
    columns = [
        ("on path", lambda row: time_ns(row.ns)),
        ("share", lambda row: percent(row.share)),
        ("slack", lambda row: time_ns(row.slack_ns)),
    ]
    shares = list(one.regions[0].gain) if one.regions else []
    for faster in shares:
        name = "free" if faster == 1 else f"{round(100 * faster)} % faster"
        columns.append((f"if {name}", _gain(faster)))
    return _region_rows(title, one.regions, *columns)


def modes_table(kernel: str, one: Any) -> object:
    return _region_rows(
        f"{kernel}: distribution of durations in cycles",
        one.regions,
        ("count", lambda row: f"{row.count:,}"),
        ("p50", lambda row: cycles(row.p50)),
        ("fast / slow mode", _two_modes),
        ("first", lambda row: cycles(row.first)),
        ("later", lambda row: cycles(row.later) if row.later else "-"),
        ("drift", lambda row: percent(row.drift)),
        ("outliers", lambda row: f"{row.outliers:,}"),
    )


def _two_modes(row: Any) -> str:
    two = row.modes
    return f"{two.fast:,.0f} / {two.slow:,.0f} ({percent(two.slow_share)} slow)" if two else "-"


def _facts(kernel: str, pairs: list[tuple[str, str]]) -> object:
    return table(kernel, [("", lambda pair: _text(pair[0])), ("", lambda pair: _text(pair[1]))], pairs)


def imbalance_table(kernel: str, one: Any) -> object:
    pairs = [
        ("median block", time_ns(one.block_median_ns)),
        ("longest block / mean", f"{one.block_factor:.2f}"),
        ("late blocks", ", ".join(map(str, one.late_blocks[:12])) or "none"),
        ("SM time idle at the end", percent(one.sm_loss)),
        ("slow SMs", ", ".join(map(str, one.slow_sms[:12])) or "none"),
    ]
    for balance in one.roles:
        factor = f"{balance.factor:.2f} ({percent(balance.loss)} lost)"
        pairs.append((f"{balance.role.name}: busiest / mean", factor))
    return _facts(f"{kernel}: balance", pairs)


def waves_table(kernel: str, one: Any) -> object:
    return _facts(
        f"{kernel}: waves",
        [
            ("blocks", f"{one.blocks:,} on {one.sms} SMs, {one.slots} resident per SM"),
            ("waves", f"{one.waves:.2f}"),
            ("SM time without a block", percent(one.idle)),
            ("  on unused SMs", percent(one.unused)),
            ("  before the first block", percent(one.ramp)),
            ("  between blocks", percent(one.gaps)),
            ("  after the last block", percent(one.tail)),
            ("  due to the number of blocks", percent(one.quantised)),
        ],
    )


def ramp_table(kernel: str, one: Any) -> object:
    return _facts(
        f"{kernel}: ramp",
        [
            ("useful regions", ", ".join(one.useful[:6])),
            ("launch to first useful region", f"{time_ns(one.to_first_ns)} ({percent(one.to_first)})"),
            ("block prologue", f"{time_ns(one.prologue_ns)} ({percent(one.prologue)})"),
            ("block epilogue", f"{time_ns(one.epilogue_ns)} ({percent(one.epilogue)})"),
            ("SM time with prologues or epilogues only", percent(one.exposed)),
            ("warp time before the first and after the last mark", percent(one.unmarked)),
        ],
    )


def clock_table(kernel: str, one: Any) -> object:
    return _facts(
        f"{kernel}: clock",
        [
            ("MHz, min to max", f"{one.mhz_min:,.0f} to {one.mhz_max:,.0f} (mean {one.mhz_mean:,.0f})"),
            ("clock error", f"{time_ns(one.error_ns)} of {time_ns(one.kernel_ns)}"),
            ("regions shorter than the error", ", ".join(one.blurred[:6]) or "none"),
        ],
    )


def occupancy_table(kernel: str, one: Any) -> object:
    share = f" ({percent(one.share)} of the slots)" if one.share else ""
    pairs = [("resident warps per SM", f"{one.warps:.1f}{share}")]
    if one.theoretical:
        could = f"{one.theoretical.warps} ({percent(one.theoretical.share)}), limited by"
        pairs.append(("theoretical", f"{could} {' and '.join(one.theoretical.limiters)}"))
        pairs.append(("to raise it", one.theoretical.lift))
    return _facts(f"{kernel}: occupancy", pairs)


def ncu_table(kernels: Iterable[Any]) -> object:
    """Build the table of an Nsight Compute report, one row per kernel."""

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
        ("theoretical", share("theoretical")),
        ("limiter", lambda one: one.limiter or "-"),
        ("stalls", stalls),
    ]
    return table("Nsight Compute: share of peak, occupancy and stalls", columns, list(kernels))
