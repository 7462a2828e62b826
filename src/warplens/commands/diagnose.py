"""`warplens diagnose`: find what limits a kernel and check it for four common problems."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from warplens.analyse.devices import DTYPES
from warplens.analyse.diagnose import Diagnosis, KnownFacts, diagnose
from warplens.analyse.kernel_issues import CLEAR, FOUND
from warplens.analyse.ncu import NcuKernel, match_kernel
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
from warplens.commands.shared.roofline_options import (
    bytes_option,
    ceilings_option,
    flops_option,
    parse_amount,
    read_ceilings,
)
from warplens.errors import ThresholdCrossed, UsageError, WarplensError, did_you_mean
from warplens.files import check_writable, safe_name
from warplens.trace.model import Trace
from warplens.wording import duration, percent

_STYLES = {FOUND: "bold red", CLEAR: "green"}


@click.command("diagnose", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="TRACE | FILE.py [PARAMETERS]")
@flops_option
@bytes_option
@click.option(
    "--roof", default=None, metavar="|".join(DTYPES), help="Compute peak to compare a trace with.  [default: fp16]"
)
@click.option("--kernel", default=None, metavar="NAME", help="Kernel to diagnose, if there are several.")
@click.option(
    "--expected",
    default=None,
    metavar="TIME",
    help="Expected kernel time, such as 5ms or 300us; twice that counts as too long.",
)
@click.option(
    "--ncu", default=None, metavar="REPORT", help="Use the counters of an Nsight Compute report (.csv or .ncu-rep)."
)
@ceilings_option
@click.option("--waits", default=None, metavar="REGEX", help="Additional regions to treat as waits.")
@click.option("--only", multiple=True, metavar="NAME", help="With FILE.py: only this benchmark (repeatable).")
@click.option("-o", "--output", default=None, metavar="FOLDER", help="With FILE.py: keep the traces in this folder.")
@click.option("--fail", is_flag=True, help="Exit with code 3 if a problem is found.")
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **given: Any) -> None:
    """Diagnose a kernel from a trace, or from a benchmark that is timed and then profiled.

    Shows whether the kernel is memory or compute bound, its occupancy, stalls and position on the roofline, and checks
    for four common problems: low memory throughput, low occupancy, long duration and a numerical problem. Each
    comes with its evidence and with what to do about it.

    A benchmark declares its FLOPs and bytes and checks its result; for a trace, give --flops and --bytes.

    \b
    Examples:
      warplens diagnose flash.warplens --flops 137e9 --bytes 67e6 --ncu flash.ncu-rep
      warplens diagnose examples/attention/bench.py --impl flash --seq-len 2048
    """
    if given["roof"] not in (None, *DTYPES):
        raise UsageError(f"--roof {given['roof']!r}: unknown type{did_you_mean(given['roof'], DTYPES)}")
    if not arguments:
        raise UsageError("give a trace, or a .py file that contains an @wl.benchmark")
    known = _known(given)
    benchmarks = [token for token in arguments if token.lower().endswith(".py") and not token.startswith("-")]
    if benchmarks:
        own = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
        found = _of_benchmark(list(arguments), own, given, known)
    else:
        if len(arguments) > 1:
            raise UsageError(f"{arguments[1]}: unexpected argument after the trace")
        if given["only"] or given["output"]:
            raise UsageError("--only and --output need a benchmark (FILE.py), not a trace")
        trace = read_trace(arguments[0])
        known |= {"flops": parse_amount(given["flops"], "--flops"), "bytes": parse_amount(given["moved"], "--bytes")}
        known |= {"dtype": given["roof"] or "fp16", "ncu": _ncu(given["ncu"], given["kernel"], trace)}
        with working("diagnosing"):
            found = [(arguments[0], diagnose(trace, kernel=given["kernel"], given=KnownFacts(**known)))]
    if given["as_json"]:
        print_json({"diagnoses": [{"of": label} | one.to_json() for label, one in found]})
    else:
        for at, (label, one) in enumerate(found):
            if at:
                stdout().print()
            _print(stdout(), label, one)
    problematic = [(label, one) for label, one in found if one.found]
    if given["fail"] and problematic:
        label, one = problematic[0]
        raise ThresholdCrossed(f"{label}: {', '.join(issue.name for issue in one.found)}")


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """Parse the options that apply to traces and benchmarks alike, before anything is read or measured."""
    return {
        "expected_ns": _time(given["expected"]),
        "measured": read_ceilings(given["ceilings"])[1] if given["ceilings"] else None,
        "waits_like": given["waits"],
    }


def _of_benchmark(
    arguments: list[str], own: list[str], given: dict[str, Any], known: dict[str, Any]
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
                ncu = _ncu(given["ncu"], given["kernel"], trace)
                out.append((label, diagnose_row(trace, row, given["kernel"], ncu=ncu, **known)))
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


def _time(text: str | None) -> float | None:
    """Parse a time such as `5ms` into ns."""
    if text is None:
        return None
    units = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * units[unit]
            except ValueError:
                break
            if 0 < value < math.inf:
                return value
            break
    raise UsageError(f"--expected {text!r}: expected a time such as 5ms, 300us or 0.1s")


def _ncu(report: str | None, kernel: str | None, trace: Trace) -> NcuKernel | None:
    """Return the diagnosed kernel's entry in an Nsight Compute report, or None without a report."""
    from warplens.runner.nsight_compute import read_ncu

    if report is None:
        return None
    wanted = [kernel] if kernel else trace.kernels
    found = [one for one in read_ncu(report) if match_kernel(one.kernel, wanted)]
    if not found:
        raise WarplensError(f"{report}: contains none of these kernels: {', '.join(wanted)}")
    return found[0]


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
    for issue in one.issues:
        style = _STYLES.get(issue.verdict, "yellow")
        print_hanging(console, f"  [{style}]{issue.verdict:<8}[/]", f"{issue.name}: {escape(issue.what)}")
        if issue.advice:
            print_hanging(console, " " * 10, f"[cyan]{escape(issue.advice)}[/]")
