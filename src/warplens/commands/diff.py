"""`warplens diff`: compare two traces and check the changes against limits."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.markup import escape

from warplens.analyse.diff import CONFIDENCE, MARGIN, ChangeVerdict, Difference, KernelChange, RegionChange, diff
from warplens.analyse.quantile_sketch import ERROR
from warplens.analyse.resample import Interval
from warplens.analyse.sample_share import sample_line
from warplens.analyse.thresholds import Crossing, Threshold, check
from warplens.analyse.trace_quality import warnings_of
from warplens.commands.shared.console import json_option, print_json, read_trace, stdout, table, working
from warplens.commands.shared.dataset_options import SKETCHED, engine_for, engine_option
from warplens.commands.shared.number_range import number_range
from warplens.engines.queries import dataset_diff
from warplens.errors import ThresholdCrossed
from warplens.trace.model import Trace
from warplens.wording import change, duration, integer, percent, plural

_COLOURS = {"FASTER": "green", "SLOWER": "red", "SAME": "dim", "UNSURE": "yellow", "NEW": "cyan", "GONE": "cyan"}

_LARGE_NOISE = "the noise is larger than the change"
_UNKNOWN_NOISE = "one launch of a version does not show how much launches vary"
_REMEDY = "Record more launches of both versions (`warplens run --launches 20`, or a loop inside wl.profile)"


@click.command("diff")
@click.argument("before")
@click.argument("after")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="REGION.METRIC:LIMIT",
    help="Exit with code 3 if a metric passes this limit, such as load.p50:+5% or load.p95:900 (repeatable).",
)
@click.option(
    "--margin",
    default=f"{100 * MARGIN:g}",
    type=number_range(float, 0),
    metavar="PERCENT",
    help="Changes up to this size count as the same.",
)
@click.option(
    "--confidence",
    default=f"{100 * CONFIDENCE:g}",
    type=number_range(float, 0, 100, exclusive=True),
    metavar="PERCENT",
    help="Confidence level of the intervals, for all regions together.",
)
@engine_option
@json_option
def command(
    before: str,
    after: str,
    fail_on: tuple[str, ...],
    margin: float,
    confidence: float,
    engine: str | None,
    as_json: bool,
) -> None:
    """Compare the traces BEFORE and AFTER region by region, with confidence intervals and a verdict.

    \b
    Example:
      warplens diff before.warplens after.warplens --fail-on load.p50:+5%
    """
    thresholds = [Threshold.parse(text) for text in fail_on]
    runner, datasets = engine_for([before, after], engine)
    limits = {"margin": margin / 100, "confidence": confidence / 100}
    if runner is not None:
        old, new = (one.outline() for one in datasets)
    else:
        old, new = read_trace(before), read_trace(after)
    with working("comparing"):
        if runner is not None:
            result = dataset_diff(datasets[0], datasets[1], runner, **limits)
        else:
            result = diff(old, new, **limits)
        crossings = check(result, thresholds)
    crossed = [one for one in crossings if one.crossed]
    if as_json:
        document = result.to_json() | {
            "before": before,
            "after": after,
            "devices": [_devices(old), _devices(new)],
            "thresholds": [asdict(one) | {"threshold": one.threshold.text} for one in crossings],
            "crossed": bool(crossed),
            "quantile_error": ERROR if runner else 0.0,
            "losses": [asdict(one.meta.losses) for one in (old, new)],
        }
        print_json(document)
    else:
        if runner:
            stdout().print(f"[yellow]{escape(SKETCHED)}[/]", soft_wrap=True)
        if _devices(old) != _devices(new):
            ran = " -> ".join(" and ".join(_devices(one)) or "unknown" for one in (old, new))
            stdout().print(f"[yellow]the traces are from different devices: {escape(ran)}[/]", soft_wrap=True)
        for side, one in (("before", old), ("after", new)):
            for line in filter(None, [sample_line(one.meta.launches), *warnings_of(one)]):
                stdout().print(f"[yellow]{side}: {escape(line)}[/]", soft_wrap=True)
        _print(result, crossings)
    if crossed:
        raise ThresholdCrossed("; ".join(one.text for one in crossed))


def _devices(trace: Trace) -> list[str]:
    return sorted({str(device.get("name", "")) for device in trace.meta.devices.values()})


def _print(result: Difference, crossings: tuple[Crossing, ...]) -> None:
    console = stdout()
    for kernel in result.kernels:
        console.print(_kernel_line(kernel))
    console.print(_region_table(result))
    for region in result:
        if region.note:
            console.print(f"[dim]{escape(region.region)}: {escape(region.note)}[/]")
    if unsure := [one for one in (*result.kernels, *result) if one.verdict is ChangeVerdict.UNSURE]:
        launches = {kernel.kernel: min(kernel.launches) for kernel in result.kernels}
        why = _UNKNOWN_NOISE if any(launches.get(one.kernel) == 1 for one in unsure) else _LARGE_NOISE
        console.print(f"[yellow]UNSURE[/]: {why}. {_REMEDY} and compare again.", soft_wrap=True)
    for one in crossings:
        mark = "[red]FAIL[/]" if one.crossed else "[green]pass[/]"
        console.print(f"{mark} {escape(one.text)}")


def _kernel_line(one: KernelChange) -> str:
    runs = f"{one.launches[0]:,} and {plural(one.launches[1], 'launch')}"
    clock = f"; clock {one.mhz[0]:,.0f} -> {one.mhz[1]:,.0f} MHz"
    return (
        f"[bold]{escape(one.kernel)}[/]: {duration(one.before_ns)} -> {duration(one.after_ns)} {_change(one.interval)} "
        f"{_verdict(one.verdict)} ({runs}{clock})"
    )


def _region_table(result: Difference) -> object:
    several = len(result.kernels) > 1
    columns = [
        ("region", lambda one: escape(f"{one.kernel}: {one.region}" if several else one.region)),
        ("verdict", lambda one: _verdict(one.verdict)),
        ("mean before", lambda one: integer(one.before.mean) if one.before else "-"),
        ("after", lambda one: integer(one.after.mean) if one.after else "-"),
        ("change", lambda one: _change(one.changes.get("mean"))),
        ("p50", lambda one: _point(one.changes.get("p50"))),
        ("p95", lambda one: _point(one.changes.get("p95"))),
        ("in ns", lambda one: _point(one.changes.get("mean_ns"))),
        ("count", _count),
        ("explains", lambda one: percent(one.explains) if one.explains is not None else "-"),
    ]
    wide = percent(result.confidence)
    title = f"cycles per span; {wide} confidence for all regions together; margin {percent(result.margin)}"
    return table(title, columns, result.regions)


def _verdict(verdict: ChangeVerdict) -> str:
    return f"[{_COLOURS[verdict.value]}]{verdict.value}[/]"


def _count(one: RegionChange) -> str:
    if one.before is None or one.after is None:
        return "-"
    return "=" if abs(one.count_change) < 1e-9 else change(one.count_change)


def _point(interval: Interval | None) -> str:
    return "-" if interval is None else change(interval.change)


def _change(interval: Interval | None) -> str:
    return "-" if interval is None else escape(change(interval.change, interval.low, interval.high))
