"""`warplens bench`: time the cases of a benchmark file, show, plot and compare results."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from warplens.analyse.resample import Interval
from warplens.bench.compare import THRESHOLD, Comparison, compare
from warplens.bench.method import CACHES, QUICK, TIMERS
from warplens.bench.results import BROKEN, Results, Row
from warplens.bench.store import SUFFIXES, load_results
from warplens.bench.text import columns, heading, how, remarks, where
from warplens.commands.common import force_option, json_option, print_json, stderr, stdout, table
from warplens.commands.plain import make_plain
from warplens.errors import ThresholdCrossed, UsageError, WarplensError, did_you_mean
from warplens.files import check_writable
from warplens.view.adaptive_table import AdaptiveTable
from warplens.wording import change, duration

if TYPE_CHECKING:
    from warplens.bench.run import Job

_COLOURS = {"better": "green", "worse": "red", "same": "dim", "unsure": "yellow", "new": "cyan", "gone": "cyan"}
_INTERRUPTED = 130
_SPARE = ("p5", "p95", "bound", "peak MiB", "GB/s")
"""Columns to go first where the terminal is narrow."""
_STATUS = {"wrong": "red", "failed": "red", "oom": "yellow", "skipped": "dim"}


@click.command("bench", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="FILE [PARAMETERS]")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE|FOLDER",
    help="Write results (.json, .csv, .md), or plots into a folder.",
)
@click.option("--plot", "plotted", default=None, metavar="RESULTS", help="Plot results into the folder of -o.")
@click.option("--format", "form", default="svg", show_default=True, metavar="svg|png|pdf", help="Of the plots.")
@click.option(
    "--compare", "compared", nargs=2, default=None, metavar="OLD NEW", help="Verdicts; exit 3 if any is worse."
)
@click.option(
    "--threshold",
    default=f"{100 * THRESHOLD:g}%",
    show_default=True,
    metavar="PERCENT",
    help="The change that matters.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Only this benchmark of the file (repeatable).")
@click.option("--list", "listed", is_flag=True, help="List the benchmarks of FILE with their parameters.")
@click.option("--device", default=None, metavar="cuda|cpu", help="Where to run; what the file says, usually cuda.")
@click.option("--timer", default=None, metavar="|".join(TIMERS[1:]), help="CUDA events, CUDA graph replay, host clock.")
@click.option("--cache", default=None, metavar="|".join(CACHES[1:]), help="What each call finds in the caches.")
@click.option("--rel-dev", default=None, metavar="PERCENT", help="Stop when the median is known this well (0.5%).")
@click.option("--timeout", default=None, type=float, metavar="SECONDS", help="Per case; the row says what was unmet.")
@click.option("--min-samples", default=None, type=int, metavar="N", help="At least so many calls.")
@click.option("--max-samples", default=None, type=int, metavar="N", help="At most so many calls.")
@click.option("--warmup", default=None, type=float, metavar="SECONDS", help="Untimed calls before the first sample.")
@click.option("--quick", is_flag=True, help="A first look: a deviation of 2 %, at most 2 s per case.")
@click.option(
    "--ceilings", default=None, metavar="FILE", help="A measured roof: what `roofline --measure --json` wrote."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **given: Any) -> int:
    """Time every case of FILE.py, check its results and print a table; or show results that were written.

    \b
    warplens bench attention.py --seq-lengths 128,256,512 --impl flash,sdpa -o results.json
    warplens bench results.json --markdown
    warplens bench --plot results.json -o plots/
    warplens bench --compare old.json new.json --threshold 3%

    Each parameter of a benchmark is an option; `warplens bench FILE.py --list` names them.
    """
    own = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
    printed = [name for name in ("json", "csv", "markdown") if given[f"as_{name}"]]
    if len(printed) > 1:
        raise UsageError(f"--{printed[0]} and --{printed[1]}: one form can be printed; write the other with -o FILE")
    if given["compared"] or given["plotted"]:
        _no_more(arguments, own)
        if given["compared"]:
            _compare(*given["compared"], threshold=_share(given["threshold"], "--threshold"), as_json=given["as_json"])
        else:
            _plot(given["plotted"], given["outputs"], given["form"], given["force"], given["as_json"])
        return 0
    from warplens.bench.arguments import split

    file, tokens = split(arguments)
    for output in given["outputs"]:
        if Path(output).suffix.lower() not in SUFFIXES:
            raise UsageError(f"-o {output}: results are written as {', '.join(SUFFIXES)}")
        check_writable(output, force=given["force"])
    written = file.lower().endswith(".json")
    if written:
        _no_more(tuple(tokens), own)
    results = load_results(file) if written else _measure(file, tokens, own, given)
    if results is None:
        return 0
    for output in given["outputs"]:
        results.save(output, force=given["force"])
    _show(results, given)
    if given["outputs"] and not printed:
        _next(given["outputs"])
    if not written and not results.complete:
        return _INTERRUPTED
    if not written:
        _judge(results)
    return 0


def _measure(file: str, tokens: list[str], own: list[str], given: dict[str, Any]) -> Results | None:
    from warplens.bench.arguments import apply
    from warplens.bench.load import choose, load_benchmarks
    from warplens.bench.run import Job
    from warplens.commands.roofline import read_ceilings

    found = choose(load_benchmarks(file), given["only"])
    if given["listed"]:
        _list(found, given["as_json"])
        return None
    chosen = apply(found, tokens, own)
    method: dict[str, Any] = dict(QUICK) if given["quick"] else {}
    named = ("timer", "cache", "timeout", "min_samples", "max_samples", "warmup")
    method |= {name: given[name] for name in named if given[name] is not None}
    if given["rel_dev"] is not None:
        method["rel_dev"] = _share(given["rel_dev"], "--rel-dev")
    measured = read_ceilings(given["ceilings"])[1] if given["ceilings"] else None
    job = Job(chosen, device=given["device"], measured=measured, **method)
    try:
        with _progress(job) as advance:
            for row in job:
                advance(row)
    except KeyboardInterrupt:
        if not job.rows:
            raise
        stderr().print(f"[yellow]interrupted: {len(job.rows)} of {job.total} cases are kept[/]")
    return job.results()


@contextmanager
def _progress(job: Job) -> Iterator[Any]:
    """Which case is running, on stderr; silent unless that is a terminal."""
    console = stderr()
    if not console.is_terminal:
        yield lambda row: None
        return
    with console.status(f"measuring {job.total} cases on {escape(job.backend.device)}") as status:

        def advance(row: Row) -> None:
            time = duration(row.median_ns) if row.median_ns else row.status
            status.update(f"{len(job.rows)} of {job.total}: {escape(row.line)} at {row.x}: {time}")

        yield advance


def _show(results: Results, given: dict[str, Any]) -> None:
    if given["as_json"]:
        print_json(results.to_json())
    elif given["as_csv"]:
        click.echo(results.to_csv(), make_plain(sys.stdout), nl=False)
    elif given["as_markdown"]:
        click.echo(results.to_markdown(), make_plain(sys.stdout), nl=False)
    else:
        console = stdout()
        for (name, others), rows in results.groups().items():
            sweep = results.sweep(name)
            shown = [(title, render) for title, render in columns(sweep, rows) if title != "remarks"]
            made = AdaptiveTable(title=escape(heading(sweep, others)), title_justify="left", spare=_SPARE)
            for title, _ in shown:
                text = title in (sweep.line, "bound")
                made.add_column(escape(title), justify="left" if text else "right", no_wrap=True)
            for row in rows:
                made.add_row(*(escape(render(row)) for _, render in shown), style=_STATUS.get(row.status))
            console.print(made)
            for row in rows:
                if remarks(row):
                    which = f"{sweep.x} {row.x}, {row.line}" if row.line else f"{sweep.x} {row.x}"
                    console.print(f"[yellow]{escape(which)}: {escape(remarks(row))}[/]", soft_wrap=True)
            console.print(f"[dim]{escape(how(sweep))}[/]")
        console.print(f"[dim]{escape(where(results))}[/]", soft_wrap=True)
        if not results.complete:
            console.print("[yellow]interrupted: not every case was measured[/]")


def _judge(results: Results) -> None:
    """Fail when a case gave a wrong result or broke."""
    broken = [row for row in results if row.status in BROKEN]
    if broken:
        first = broken[0]
        at = f"{first.benchmark} {first.line} at {results.sweep(first.benchmark).x} {first.x}"
        raise WarplensError(
            f"{len(broken)} of {len(results)} cases are wrong or failed; {at}: {first.status}: {first.note}"
        )


def _next(outputs: tuple[str, ...]) -> None:
    saved = next((output for output in outputs if output.lower().endswith(".json")), None)
    console = stderr()
    console.print(f"wrote {', '.join(map(escape, outputs))}", soft_wrap=True)
    if saved:
        console.print(f"next: warplens bench --plot {escape(saved)} -o plots/", soft_wrap=True)


def _list(found: list[Any], as_json: bool) -> None:
    from warplens.bench.arguments import describe

    if as_json:
        print_json({one.name: {name: [values, role] for name, values, role in describe(one)} for one in found})
        return
    for one in found:
        made = Table(title=escape(one.name), title_justify="left", header_style="bold", pad_edge=False, box=None)
        for title in ("option", "usually", "role"):
            made.add_column(title)
        for cells in describe(one):
            made.add_row(*map(escape, cells))
        stdout().print(made)


def _plot(path: str, outputs: tuple[str, ...], form: str, force: bool, as_json: bool) -> None:
    if len(outputs) != 1:
        raise UsageError("--plot: name one folder for the plots with -o, such as -o plots/")
    files = load_results(path).plot(outputs[0], format=form, force=force)
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        stdout().print(escape(str(file)), soft_wrap=True)


def _compare(old: str, new: str, *, threshold: float, as_json: bool) -> None:
    result = compare(load_results(old), load_results(new), threshold=threshold)
    if as_json:
        print_json(result.to_json() | {"before": old, "after": new})
    else:
        _print_comparison(result)
    worse = result.having("worse")
    if worse:
        more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
        note = worse[0].note if worse[0].interval is None else _percent(worse[0].interval)
        raise ThresholdCrossed(f"{len(worse)} of {len(result.changes)} cases are worse: {worse[0].name}: {note}{more}")


def _print_comparison(result: Comparison) -> None:
    console = stdout()
    columns = [
        ("case", lambda one: escape(one.name)),
        ("verdict", lambda one: f"[{_COLOURS[one.verdict]}]{one.verdict}[/]"),
        ("before", lambda one: duration(one.before_ns) if one.before_ns else "-"),
        ("after", lambda one: duration(one.after_ns) if one.after_ns else "-"),
        ("change of the median", lambda one: escape(_percent(one.interval))),
    ]
    title = f"worse and better: beyond {100 * result.threshold:g} % and beyond the noise"
    console.print(table(title, columns, result.changes))
    for one in result:
        if one.note:
            console.print(f"[dim]{escape(one.name)}: {escape(one.note)}[/]", soft_wrap=True)
    for line in result.warnings:
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    counts = {verdict: len(result.having(verdict)) for verdict in _COLOURS}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))


def _percent(interval: Interval | None) -> str:
    return "-" if interval is None else change(interval.change, interval.low, interval.high)


def _share(text: str, option: str) -> float:
    """`5%` or `5` as 0.05."""
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", number := text.strip().removesuffix("%").strip()) or float(number) <= 0:
        raise UsageError(f"{option} {text!r}: expected a percentage above 0, such as 5%")
    return float(number) / 100


def _no_more(arguments: tuple[str, ...], own: list[str]) -> None:
    if arguments:
        hint = did_you_mean(arguments[0], own) if arguments[0].startswith("-") else ""
        raise UsageError(f"{arguments[0]}: nothing more is expected here{hint}")
