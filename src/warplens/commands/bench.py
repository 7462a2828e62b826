"""`warplens bench`: run benchmarks, and show, plot and compare their results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from warplens.analyse.resample import Interval
from warplens.bench.benchmark_file import load_benchmarks, select_benchmarks
from warplens.bench.compare import THRESHOLD, Comparison, compare
from warplens.bench.measurement_method import CACHES, QUICK, TIMERS
from warplens.bench.parameter_options import apply_options, describe_parameters, split_file
from warplens.bench.result_files import SUFFIXES, load_results
from warplens.bench.result_tables import columns, heading, machine_line, method_line, remarks
from warplens.bench.results import BROKEN, ResultRow, Results
from warplens.commands.shared.ascii_fallback import with_ascii_fallback
from warplens.commands.shared.console import force_option, json_option, print_json, stderr, stdout, table
from warplens.commands.shared.quantities import percentage
from warplens.commands.shared.roofline_options import ceilings_option, read_ceilings
from warplens.errors import ThresholdCrossed, UsageError, WarplensError, did_you_mean
from warplens.files import check_writable
from warplens.view.adaptive_table import AdaptiveTable
from warplens.wording import change, duration

if TYPE_CHECKING:
    from warplens.bench.benchmark_job import BenchmarkJob

_COLOURS = {"better": "green", "worse": "red", "same": "dim", "unsure": "yellow", "new": "cyan", "gone": "cyan"}
_INTERRUPTED = 130
_OPTIONAL_COLUMNS = ("p5", "p95", "bound", "peak MiB", "GB/s")
"""Columns to drop first on a narrow terminal."""
_STATUS = {"wrong": "red", "failed": "red", "oom": "yellow", "skipped": "dim"}


@click.command("bench", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="FILE [PARAMETERS]")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE|FOLDER",
    help="Write the results to FILE (.json, .csv or .md; repeatable); with --plot, the folder for the plots.",
)
@click.option("--plot", "plotted", metavar="RESULTS", help="Plot a result file into the folder of -o.")
@click.option("--format", "form", default="svg", metavar="svg|png|pdf", help="Image format of the plots.")
@click.option(
    "--compare", "compared", nargs=2, metavar="OLD NEW", help="Compare two result files; exit 3 on a regression."
)
@click.option(
    "--threshold",
    default=f"{100 * THRESHOLD:g}%",
    metavar="PERCENT",
    help="Smallest change that --compare reports as better or worse.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Run only this benchmark of FILE (repeatable).")
@click.option("--list", "listed", is_flag=True, help="List the benchmarks of FILE and their parameters, then exit.")
@click.option("--device", metavar="cuda|cpu", help="Device to run on.  [default: as declared in FILE, or cuda]")
@click.option(
    "--timer",
    metavar="|".join(TIMERS[1:]),
    help="Time calls with CUDA events, CUDA graph replay or the host clock.  [default: events; clock on the CPU]",
)
@click.option(
    "--cache",
    metavar="|".join(CACHES[1:]),
    help="Cache state before each call: L2 flushed, rotating inputs or warm.  [default: flush; warm on the CPU]",
)
@click.option(
    "--rel-dev",
    metavar="PERCENT",
    help="Stop a case when the 95% confidence interval of its median is within this much.  [default: 0.5%]",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="Maximum time to measure each case.  [default: 10]")
@click.option("--min-samples", type=int, metavar="N", help="Minimum number of calls.  [default: 30]")
@click.option("--max-samples", type=int, metavar="N", help="Maximum number of calls.  [default: 5000]")
@click.option("--warmup", type=float, metavar="SECONDS", help="Time to run untimed calls first.  [default: 0.05]")
@click.option("--quick", is_flag=True, help="Measure less: --rel-dev 2%, at most 300 calls and 2 s per case.")
@ceilings_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the results as CSV.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the results as Markdown.")
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **given: Any) -> int:
    """Time and check every case of the benchmarks in FILE.py, or show the results in FILE.json.

    Each parameter of a benchmark is an option that takes one or more values; `warplens bench FILE.py --list` shows
    them. Defaults of the measurement options may be set in FILE.py.

    \b
    Examples:
      warplens bench attention.py --seq-lengths 128,256,512 --impl flash,sdpa -o results.json
      warplens bench results.json --markdown
      warplens bench --plot results.json -o plots/
      warplens bench --compare old.json new.json --threshold 3%
    """
    own = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
    printed = [name for name in ("json", "csv", "markdown") if given[f"as_{name}"]]
    if len(printed) > 1:
        raise UsageError(
            f"--{printed[0]} and --{printed[1]} cannot be combined; write one of them to a file with -o FILE"
        )
    if given["compared"] or given["plotted"]:
        _reject_arguments(arguments, own)
        if given["compared"]:
            _compare(
                *given["compared"], threshold=percentage(given["threshold"], "--threshold"), as_json=given["as_json"]
            )
        else:
            _plot(given["plotted"], given["outputs"], given["form"], given["force"], given["as_json"])
        return 0
    file, tokens = split_file(arguments)
    for output in given["outputs"]:
        if Path(output).suffix.lower() not in SUFFIXES:
            raise UsageError(f"-o {output}: unknown result format; the file name must end in {', '.join(SUFFIXES)}")
        check_writable(output, force=given["force"])
    written = file.lower().endswith(".json")
    if written:
        _reject_arguments(tuple(tokens), own)
    results = load_results(file) if written else _measure(file, tokens, own, given)
    if results is None:
        return 0
    for output in given["outputs"]:
        results.save(output, force=given["force"])
    _show(results, given)
    if given["outputs"] and not printed:
        _print_next(given["outputs"])
    if not written and not results.complete:
        return _INTERRUPTED
    if not written:
        _raise_on_failures(results)
    return 0


def _measure(file: str, tokens: list[str], own: list[str], given: dict[str, Any]) -> Results | None:
    from warplens.bench.benchmark_job import BenchmarkJob

    found = select_benchmarks(load_benchmarks(file), given["only"])
    if given["listed"]:
        _list(found, given["as_json"])
        return None
    chosen = apply_options(found, tokens, own)
    method: dict[str, Any] = dict(QUICK) if given["quick"] else {}
    named = ("timer", "cache", "timeout", "min_samples", "max_samples", "warmup")
    method |= {name: given[name] for name in named if given[name] is not None}
    if given["rel_dev"] is not None:
        method["rel_dev"] = percentage(given["rel_dev"], "--rel-dev")
    measured = read_ceilings(given["ceilings"])[1] if given["ceilings"] else None
    job = BenchmarkJob(chosen, device=given["device"], measured=measured, **method)
    try:
        with _progress(job) as advance:
            for row in job:
                advance(row)
    except KeyboardInterrupt:
        if not job.rows:
            raise
        stderr().print(f"[yellow]interrupted: showing {len(job.rows)} of {job.total} cases[/]")
    return job.results()


@contextmanager
def _progress(job: BenchmarkJob) -> Iterator[Any]:
    """Show which case is running, if stderr is a terminal."""
    console = stderr()
    if not console.is_terminal:
        yield lambda row: None
        return
    with console.status(f"measuring {job.total} cases on {escape(job.backend.device)}") as status:

        def advance(row: ResultRow) -> None:
            time = duration(row.median_ns) if row.median_ns else row.status
            status.update(f"{len(job.rows)} of {job.total}: {escape(row.line)} at {row.x}: {time}")

        yield advance


def _show(results: Results, given: dict[str, Any]) -> None:
    if given["as_json"]:
        print_json(results.to_json())
    elif given["as_csv"]:
        click.echo(results.to_csv(), with_ascii_fallback(sys.stdout), nl=False)
    elif given["as_markdown"]:
        click.echo(results.to_markdown(), with_ascii_fallback(sys.stdout), nl=False)
    else:
        console = stdout()
        for (name, others), rows in results.groups().items():
            sweep = results.sweep(name)
            shown = [(title, render) for title, render in columns(sweep, rows) if title != "remarks"]
            made = AdaptiveTable(title=escape(heading(sweep, others)), title_justify="left", spare=_OPTIONAL_COLUMNS)
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
            console.print(f"[dim]{escape(method_line(sweep))}[/]")
        console.print(f"[dim]{escape(machine_line(results))}[/]", soft_wrap=True)
        if not results.complete:
            console.print("[yellow]incomplete: the run was interrupted before every case was measured[/]")


def _raise_on_failures(results: Results) -> None:
    """Raise an error if a case gave a wrong result or failed."""
    broken = [row for row in results if row.status in BROKEN]
    if broken:
        first = broken[0]
        at = f"{first.benchmark} {first.line} at {results.sweep(first.benchmark).x} {first.x}"
        raise WarplensError(
            f"{len(broken)} of {len(results)} cases are wrong or failed; {at}: {first.status}: {first.note}"
        )


def _print_next(outputs: tuple[str, ...]) -> None:
    saved = next((output for output in outputs if output.lower().endswith(".json")), None)
    console = stderr()
    console.print(f"wrote {', '.join(map(escape, outputs))}", soft_wrap=True)
    if saved:
        console.print(f"next: warplens bench --plot {escape(saved)} -o plots/", soft_wrap=True)


def _list(found: list[Any], as_json: bool) -> None:
    if as_json:
        print_json(
            {one.name: {name: [values, role] for name, values, role in describe_parameters(one)} for one in found}
        )
        return
    for one in found:
        made = Table(title=escape(one.name), title_justify="left", header_style="bold", pad_edge=False, box=None)
        for title in ("option", "default", "role"):
            made.add_column(title)
        for cells in describe_parameters(one):
            made.add_row(*map(escape, cells))
        stdout().print(made)


def _plot(path: str, outputs: tuple[str, ...], form: str, force: bool, as_json: bool) -> None:
    if len(outputs) != 1:
        raise UsageError("--plot needs one output folder, for example -o plots/")
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
        raise ThresholdCrossed(f"{len(worse)} of {len(result.changes)} cases got worse: {worse[0].name}: {note}{more}")


def _print_comparison(result: Comparison) -> None:
    console = stdout()
    columns = [
        ("case", lambda one: escape(one.name)),
        ("verdict", lambda one: f"[{_COLOURS[one.verdict]}]{one.verdict}[/]"),
        ("before", lambda one: duration(one.before_ns) if one.before_ns else "-"),
        ("after", lambda one: duration(one.after_ns) if one.after_ns else "-"),
        ("change of the median", lambda one: escape(_percent(one.interval))),
    ]
    title = f"better or worse: the median changed by more than {100 * result.threshold:g} % and more than the noise"
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


def _reject_arguments(arguments: tuple[str, ...], own: list[str]) -> None:
    if arguments:
        hint = did_you_mean(arguments[0], own) if arguments[0].startswith("-") else ""
        raise UsageError(f"{arguments[0]}: unexpected argument{hint}")
