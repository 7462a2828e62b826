"""`warplens diagnose`: what limits a kernel, and the findings about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from warplens.analyse.diagnose import Diagnosis, diagnose
from warplens.analyse.sample_share import sample_line
from warplens.analyse.trace_quality import time_line, warnings_of
from warplens.commands.shared.analysis_tables import print_findings
from warplens.commands.shared.console import (
    force_option,
    json_option,
    print_hanging,
    print_json,
    read_trace,
    stderr,
    stdout,
    working,
)
from warplens.commands.shared.finding_options import check_roof, fact_options, known_facts, read_report
from warplens.commands.shared.quantities import nanoseconds
from warplens.commands.shared.roofline_options import read_ceilings
from warplens.errors import ThresholdCrossed, UsageError, WarplensError
from warplens.files import check_writable, safe_name
from warplens.wording import duration, percent


@click.command("diagnose", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="TRACE | FILE.py [PARAMETERS]")
@click.option("--kernel", metavar="NAME", help="Kernel to diagnose, if there are several.")
@click.option(
    "--expected",
    metavar="TIME",
    help="Expected kernel time, such as 5ms or 300us; a kernel that takes over twice as long is reported as late.",
)
@fact_options
@click.option("--only", multiple=True, metavar="NAME", help="With FILE.py: only this benchmark (repeatable).")
@click.option("-o", "--output", metavar="FOLDER", help="With FILE.py: keep the traces in this folder.")
@click.option("--fail", is_flag=True, help="Exit with code 3 if a problem is found.")
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **given: Any) -> None:
    """Diagnose a kernel from a trace, or from a benchmark that is timed and then profiled.

    Shows whether the kernel is memory or compute bound, its occupancy, stalls and position on the roofline, and the
    findings about it, as `warplens findings` does.

    A benchmark declares its FLOPs and bytes and checks its result; for a trace, give --flops and --bytes.

    \b
    Examples:
      warplens diagnose flash.warplens --flops 137e9 --bytes 67e6 --ncu flash.ncu-rep
      warplens diagnose examples/attention/bench.py --impl flash --seq-len 2048
    """
    check_roof(given["roof"])
    if not arguments:
        raise UsageError("give a trace, or a .py file that contains an @wl.benchmark")
    expected = None if given["expected"] is None else nanoseconds(given["expected"], "--expected")
    benchmarks = [token for token in arguments if token.lower().endswith(".py") and not token.startswith("-")]
    if benchmarks:
        own = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
        found = _of_benchmark(list(arguments), own, given, expected)
    else:
        if len(arguments) > 1:
            raise UsageError(f"{arguments[1]}: unexpected argument after the trace")
        if given["only"] or given["output"]:
            raise UsageError("--only and --output need a benchmark (FILE.py), not a trace")
        trace = read_trace(arguments[0])
        facts = replace(known_facts(given, trace, given["kernel"]), expected_ns=expected)
        with working("diagnosing"):
            found = [(arguments[0], diagnose(trace, kernel=given["kernel"], given=facts, waits_like=given["waits"]))]
        if not given["as_json"]:
            for line in filter(None, [sample_line(trace.meta.launches), time_line(trace), *warnings_of(trace)]):
                stdout().print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    if given["as_json"]:
        print_json({"diagnoses": [{"of": label} | one.to_json() for label, one in found]})
    else:
        for at, (label, one) in enumerate(found):
            if at:
                stdout().print()
            _print(stdout(), label, one)
    problematic = [(label, one) for label, one in found if one.late or one.findings.problems]
    if given["fail"] and problematic:
        label, one = problematic[0]
        named = [*([one.late] if one.late else []), *(each.kind for each in one.findings.problems)]
        raise ThresholdCrossed(f"{label}: {', '.join(named)}")


def _of_benchmark(
    arguments: list[str], own: list[str], given: dict[str, Any], expected: float | None
) -> list[tuple[str, Diagnosis]]:
    from warplens.bench.benchmark_file import load_benchmarks, select_benchmarks
    from warplens.bench.benchmark_job import BenchmarkJob
    from warplens.bench.case_diagnosis import diagnose_row, profile_case
    from warplens.bench.measurement_method import QUICK
    from warplens.bench.parameter_options import apply_options, split_file

    if given["flops"] or given["moved"] or given["roof"]:
        raise UsageError(
            "--flops, --bytes and --roof cannot be used with a benchmark: its cases declare their work and type"
        )
    known = {"expected_ns": expected, "measured": read_ceilings(given["ceilings"])[1] if given["ceilings"] else None}
    file, tokens = split_file(arguments)
    chosen = apply_options(select_benchmarks(load_benchmarks(file), given["only"]), tokens, own)
    method: dict[str, Any] = dict(QUICK)
    job = BenchmarkJob(chosen, **method)
    makers = {one.name: one.make for one in chosen}
    varying = {one.name: [axis.name for axis in one.fixed if len(axis.values) > 1] for one in chosen}
    out, missed = [], []
    for row in job:
        others = [(name, row.params[name]) for name in varying[row.benchmark]]
        label = ", ".join([f"{row.line} at {row.x}", *(f"{name} {value}" for name, value in others)])
        if not row.timed:
            missed.append(f"{label}: {row.status}: {row.note}")
            continue
        parts = [row.benchmark, row.line, row.x, *(f"{name}={value}" for name, value in others)]
        try:
            path = _target(given["output"], "_".join(map(str, parts)), given["force"])
            with working(f"profiling {label}"):
                trace = profile_case(makers[row.benchmark], row.params, path)
                ncu = read_report(given["ncu"], given["kernel"], trace)
                found = diagnose_row(trace, row, given["kernel"], given["waits"], ncu=ncu, **known)
                out.append((label, found))
        except WarplensError as error:
            missed.append(f"{label}: {error}")
    for line in missed if out else missed[1:]:
        stderr().print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    if not out:
        raise WarplensError(f"none of the {job.total} cases could be diagnosed; {missed[0] if missed else ''}")
    return out


def _target(folder: str | None, name: str, force: bool) -> Path | None:
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return check_writable(Path(folder) / f"{safe_name(name)}.warplens", force=force)


def _print(console: Console, label: str, one: Diagnosis) -> None:
    name = label if label == one.kernel else f"{label}: {one.kernel}"
    console.print(f"[bold]{escape(name)}[/], {duration(one.time_ns)} on {escape(one.device or 'an unknown device')}")
    bound = {"neither": "neither memory nor compute bound", "unknown": "bound unknown"}
    words = bound.get(one.bound, f"{one.bound} bound")
    print_hanging(console, "  ", f"[bold]{words}[/]: {escape(one.why)}")
    if one.moves:
        print_hanging(console, "  roofline    ", escape(one.moves))
    filled = one.occupancy
    if filled is not None and filled.share is not None:
        limit = filled.theoretical
        could = f", {percent(limit.share)} possible (limited by {' and '.join(limit.limiters)})" if limit else ""
        print_hanging(console, "  occupancy   ", f"{percent(filled.share)} of the warp slots{could}")
    origin = "Nsight Compute" if one.stalls_from == "ncu" else "regions that wait"
    listed = ", ".join(f"{escape(name)} {percent(share)}" for name, share in list(one.stalls.items())[:4] if share)
    print_hanging(console, "  stalls      ", f"{listed or 'none marked'} ({origin})")
    if one.late:
        print_hanging(console, "  [bold red]late[/]        ", escape(one.late))
    print_findings(console, one.findings)
