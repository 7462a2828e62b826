"""`warplens diagnose`: what limits a kernel, and which of the four common troubles it has."""

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
from warplens.commands.common import (
    force_option,
    json_option,
    print_hanging,
    print_json,
    read_trace,
    stderr,
    stdout,
    working,
)
from warplens.commands.roofline import amount, read_ceilings
from warplens.errors import ThresholdCrossed, UsageError, WarplensError, did_you_mean
from warplens.files import check_writable, safe_name
from warplens.trace.model import Trace
from warplens.wording import duration, percent

_STYLES = {FOUND: "bold red", CLEAR: "green"}


@click.command("diagnose", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="TRACE | FILE.py [PARAMETERS]")
@click.option("--flops", default=None, metavar="N", help="FLOPs per launch: 137e9, 137G or 2*4096*4096*4096.")
@click.option("--bytes", "moved", default=None, metavar="N", help="Bytes to and from memory per launch.")
@click.option("--roof", default=None, metavar="|".join(DTYPES), help="Which compute roof of a trace; fp16.")
@click.option("--kernel", default=None, help="The kernel, when there are several.")
@click.option("--expected", default=None, metavar="TIME", help="How long it should take: 5ms, 300us; 2x that is long.")
@click.option("--ncu", default=None, metavar="REPORT", help="Nsight Compute's report (.csv or .ncu-rep) of the kernel.")
@click.option("--ceilings", default=None, metavar="FILE", help="A measured roof: `roofline --measure --json`.")
@click.option("--waits", default=None, metavar="REGEX", help="Regions that only wait, besides those named so.")
@click.option("--only", multiple=True, metavar="NAME", help="FILE.py: only this benchmark (repeatable).")
@click.option("-o", "--output", default=None, metavar="FOLDER", help="FILE.py: keep the traces here.")
@click.option("--fail", is_flag=True, help="Exit with 3 when a trouble is found.")
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **given: Any) -> None:
    """Memory or compute bound, occupancy, stalls, roofline position; low memory throughput, low occupancy, long
    duration, numerical trouble: each with its evidence and what to do.

    \b
    warplens diagnose flash.warplens --flops 137e9 --bytes 67e6 --ncu flash.ncu-rep
    warplens diagnose examples/attention/bench.py --impl flash --seq-len 2048

    A benchmark knows its work and checks its result: it is timed, then profiled once more.
    """
    if given["roof"] not in (None, *DTYPES):
        raise UsageError(f"--roof {given['roof']!r} is not known{did_you_mean(given['roof'], DTYPES)}")
    if not arguments:
        raise UsageError("name a trace, or a .py file with @wl.benchmark in it")
    known = _known(given)
    benchmarks = [token for token in arguments if token.lower().endswith(".py") and not token.startswith("-")]
    if benchmarks:
        own = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
        found = _of_benchmark(list(arguments), own, given, known)
    else:
        if len(arguments) > 1:
            raise UsageError(f"{arguments[1]}: nothing more is expected after a trace")
        if given["only"] or given["output"]:
            raise UsageError("--only and --output go with a benchmark (FILE.py), not with a trace")
        trace = read_trace(arguments[0])
        known |= {"flops": amount(given["flops"], "--flops"), "bytes": amount(given["moved"], "--bytes")}
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
    troubled = [(label, one) for label, one in found if one.found]
    if given["fail"] and troubled:
        label, one = troubled[0]
        raise ThresholdCrossed(f"{label}: {', '.join(issue.name for issue in one.found)}")


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """What both kinds of input take from the command line, before anything is read or measured."""
    return {
        "expected_ns": _time(given["expected"]),
        "measured": read_ceilings(given["ceilings"])[1] if given["ceilings"] else None,
        "waits_like": given["waits"],
    }


def _of_benchmark(
    arguments: list[str], own: list[str], given: dict[str, Any], known: dict[str, Any]
) -> list[tuple[str, Diagnosis]]:
    from warplens.bench.arguments import apply, split
    from warplens.bench.inside import diagnose_row, profile_case
    from warplens.bench.load import choose, load_benchmarks
    from warplens.bench.method import QUICK
    from warplens.bench.run import Job

    if given["flops"] or given["moved"] or given["roof"]:
        raise UsageError("--flops, --bytes and --roof: a benchmark's case declares its own work and type")
    file, tokens = split(arguments)
    chosen = apply(choose(load_benchmarks(file), given["only"]), tokens, own)
    method: dict[str, Any] = dict(QUICK)
    job = Job(chosen, **method)
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
        raise WarplensError(f"none of {job.total} cases could be diagnosed; {missed[0] if missed else ''}")
    return out


def _target(folder: str | None, name: str, force: bool) -> Path | None:
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return check_writable(Path(folder) / f"{safe_name(name)}.warplens", force=force)


def _time(text: str | None) -> float | None:
    """`5ms` in ns."""
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
    """The kernel of a report that is the one diagnosed; None without a report."""
    from warplens.runner.nsight_compute import read_ncu

    if report is None:
        return None
    wanted = [kernel] if kernel else trace.kernels
    found = [one for one in read_ncu(report) if match_kernel(one.kernel, wanted)]
    if not found:
        raise WarplensError(f"{report}: holds none of {', '.join(wanted)}")
    return found[0]


def _print(console: Console, label: str, one: Diagnosis) -> None:
    name = label if label == one.kernel else f"{label}: {one.kernel}"
    console.print(f"[bold]{escape(name)}[/], {duration(one.time_ns)} on {escape(one.device or 'an unknown device')}")
    bound = {"neither": "neither memory nor compute bound", "unknown": "bound not known"}
    words = bound.get(one.bound, f"{one.bound} bound")
    print_hanging(console, "  ", f"[bold]{words}[/]: {escape(one.why)}")
    if one.moves:
        print_hanging(console, "  roofline    ", escape(one.moves))
    filled = one.occupancy
    if filled is not None and filled.share is not None:
        limit = filled.theoretical
        could = f", {percent(limit.share)} could be (limit: {' and '.join(limit.limiters)})" if limit else ""
        print_hanging(console, "  occupancy   ", f"{percent(filled.share)} of the warp slots{could}")
    origin = "Nsight Compute" if one.stalls_from == "ncu" else "waiting regions"
    listed = ", ".join(f"{escape(name)} {percent(share)}" for name, share in list(one.stalls.items())[:4] if share)
    print_hanging(console, "  stalls      ", f"{listed or 'none marked'} ({origin})")
    for issue in one.issues:
        style = _STYLES.get(issue.verdict, "yellow")
        print_hanging(console, f"  [{style}]{issue.verdict:<8}[/]", f"{issue.name}: {escape(issue.what)}")
        if issue.advice:
            print_hanging(console, " " * 10, f"[cyan]{escape(issue.advice)}[/]")
