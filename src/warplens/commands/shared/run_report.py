"""The summary of `warplens run`: a table of kernels, the files and the next commands, as text or JSON."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from warplens.analyse.hang import Hang
from warplens.analyse.run_summary import KernelSummary, summarise, unmarked
from warplens.analyse.sample_share import sample_line, sample_share
from warplens.analyse.sampled_stalls import sampled_stalls
from warplens.analyse.trace_quality import warnings_of
from warplens.commands.shared.console import stderr, table
from warplens.commands.shared.counter_tables import ncu_table, print_counters
from warplens.commands.shared.invocation import warplens_command
from warplens.commands.shared.torch_tables import torch_tables
from warplens.errors import WarplensError
from warplens.profiling.profile import Profile
from warplens.profiling.trace_paths import last_records_path
from warplens.runner.companion_base import CompanionReport
from warplens.runner.program import Outcome, TargetProgram
from warplens.trace.io import rank_part
from warplens.trace.model import Trace, empty_table
from warplens.wording import duration, percent, plural

FULL_COVERAGE = 0.9
"""With `--auto all`, warn if regions cover less than this share of a warp's time."""
_DETAILED_KERNELS = 8
"""Number of kernels, longest first, whose top regions are listed."""
_COLUMNS = [
    ("kernel", lambda one: escape(_name(one))),
    ("launches", lambda one: f"{one.recorded:,}" + (f" of {one.ran:,}" if one.ran > one.recorded else "")),
    ("mean", lambda one: duration(one.mean_ns)),
    ("total", lambda one: duration(one.total_ns)),
    ("regions", lambda one: f"{one.regions:,}"),
    ("records/warp", lambda one: f"{one.records_per_warp:,.0f}"),
    ("slowdown", lambda one: "-" if one.slowdown is None else str(one.slowdown)),
    ("covered", lambda one: "-" if one.covered_median is None else percent(one.covered_median)),
    ("least covered warp", lambda one: "-" if one.covered_least is None else percent(one.covered_least)),
]


_UNMARKED_COLUMNS = [
    ("kernel", lambda one: escape(short(one.kernel))),
    ("launches", lambda one: f"{one.launches:,}"),
    ("mean", lambda one: "-" if one.mean_ns is None else duration(one.mean_ns)),
    ("total", lambda one: "-" if one.mean_ns is None else f"about {duration(one.mean_ns * one.launches)}"),
    ("in", lambda one: escape(one.library or "code made at run time")),
]
"""Only some launches are timed, so their sum is not known."""
_SAMPLED_COLUMN = ("blocks", lambda one: "all" if one.sample is None else percent(one.sample["share"]))


def describe(
    profile: Profile,
    outcome: Outcome,
    found: Sequence[CompanionReport] = (),
    *,
    launches_given: bool = False,
    merge_variants: bool = False,
) -> None:
    """Print the summary on stderr, since stdout belongs to the program.

    `launches_given` says whether the user chose how many launches to record.
    """
    console = stderr()
    trace = trace_of(profile)
    if outcome.cut_short and len(trace):
        console.print("[yellow]the program did not finish; the trace contains what ran until then[/]")
    if len(trace):
        console.print(f"\nrank {profile.rank} of {profile.job.size:,}" if profile.job.is_one_of_many else "")
        sample = sample_line(trace.meta.launches)
        if sample:
            console.print(f"[yellow]{escape(sample)}; --blocks all records all[/]", soft_wrap=True)
        kernels = summarise(trace, profile.seen, merge_variants=merge_variants)
        columns = [*_COLUMNS[:2], *[_SAMPLED_COLUMN] * bool(sample), *_COLUMNS[2:]]
        console.print(table("kernels", columns, kernels, spare=("least covered warp", "total", "regions")))
        for one in kernels[:_DETAILED_KERNELS]:
            where = ", ".join(f"{escape(_region(name))} {percent(share)}" for name, share in one.top)
            where = where or "no regions; only the start and the exit of each warp are recorded"
            console.print(f"[dim]{escape(_name(one))}:[/] {where}", soft_wrap=True)
        for one in kernels if profile.options.marks.covers_all_code else ():
            if one.covered_least is not None and one.covered_least < FULL_COVERAGE:
                why = "; ".join(profile.notes.get(one.kernel, ()))
                console.print(
                    f"[yellow]{escape(short(one.kernel))}: up to {percent(1 - one.covered_least)} of a warp's time "
                    f"is outside all regions{escape(f' ({why})' if why else '')}[/]",
                    soft_wrap=True,
                )
        if (
            not launches_given
            and profile.options.launches is not None
            and any(one.ran > one.recorded for one in kernels)
        ):
            most = profile.options.launches
            console.print(
                f"only the first {most} launches of each variant were recorded; use --launches all to record all"
            )
        if profile.cold_launches:
            left_out = plural(profile.cold_launches, "launch")
            console.print(f"the cold first launch of each variant was left out ({left_out}); use --skip 0 to keep it")
        if profile.options.watch is not None:
            console.print("each record was stored at its mark (--watch); the slowdown includes what that costs")
        for line in warnings_of(trace):
            console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    if profile.run.unmarked:
        console.print(table("kernels without marks", _UNMARKED_COLUMNS, profile.run.unmarked, spare=("in",)))
    left = unmarked(trace, profile.seen, profile.notes)
    if left and len(trace):
        console.print(f"{plural(len(left), 'kernel')} ran without marks:")
        for kernel, reason in left.items():
            console.print(f"  {escape(short(kernel))}: {escape(reason or 'no marks')}", soft_wrap=True)
    print_counters(console, sampled_stalls(trace))
    for report in found:
        _print_companion(console, report)
    files = _files(profile, trace, found)
    if files:
        console.print("\n[bold]files[/]")
        for file in files:
            console.print(f"  {escape(str(file))} ({file.stat().st_size:,} bytes)", soft_wrap=True)
    commands = _next(profile, trace, found)
    if commands:
        console.print("[bold]next[/]")
        for line in commands:
            console.print(f"  {escape(line)}", soft_wrap=True)


def _print_companion(console: Console, report: CompanionReport) -> None:
    if report.ncu_kernels:
        console.print(ncu_table(report.ncu_kernels))
    if report.counters is not None:
        print_counters(console, report.counters)
    if report.torch_summary is not None:
        for made in torch_tables(report.torch_summary):
            console.print(made)
    for line in report.lines:
        console.print(line)


def document(
    program: TargetProgram,
    profile: Profile,
    outcome: Outcome,
    problem: WarplensError | None,
    found: Sequence[CompanionReport] = (),
    *,
    merge_variants: bool = False,
) -> dict[str, Any]:
    """Return the summary as a JSON document."""
    trace = trace_of(profile)
    return {
        "program": [program.target, *program.arguments],
        "exit_code": outcome.code,
        "ended_by": type(outcome.error).__name__ if outcome.error is not None else None,
        "file": str(profile.path) if len(trace) else None,
        "files": [str(file) for file in _files(profile, trace, found)],
        "spans": len(trace),
        "kernels": [one.to_json() for one in summarise(trace, profile.seen, merge_variants=merge_variants)],
        "sample": sample_share(trace.meta.launches),
        "cold_launches_left_out": profile.cold_launches,
        "unmarked": unmarked(trace, profile.seen, profile.notes),
        "unmarked_kernels": [asdict(one) | {"mean_ns": one.mean_ns} for one in profile.run.unmarked],
        "notes": profile.notes,
        "warnings": warnings_of(trace) if len(trace) else [],
        "problem": str(problem) if problem is not None else None,
        "counters": sampled_stalls(trace).to_json() if trace.meta.pc_samples else None,
        "hangs": [one.to_json() for one in profile.hang_watch.found] if profile.hang_watch is not None else [],
        "companions": [one.document for one in found],
        "next": _next(profile, trace, found),
    }


def hang_document(program: TargetProgram, profile: Profile, code: int, found: Sequence[Hang]) -> dict[str, Any]:
    """Return the summary of a program that was ended because a kernel did not end."""
    written = profile.path is not None and profile.path.exists()
    return {
        "program": [program.target, *program.arguments],
        "exit_code": code,
        "ended_by": "hang",
        "file": str(profile.path) if written else None,
        "hangs": [one.to_json() for one in found],
        "notes": profile.notes,
    }


def trace_of(profile: Profile) -> Trace:
    """Return the profile's trace, or an empty one if nothing was recorded."""
    try:
        return profile.trace
    except WarplensError:
        return Trace(empty_table())


def _files(profile: Profile, trace: Trace, found: Sequence[CompanionReport]) -> list[Path]:
    own = [shown_path(profile.path)] if len(trace) and profile.path is not None else []
    if own and profile.has_last_records:
        own.append(last_records_path(own[0]))
    if profile.job.is_one_of_many:
        own = [rank_part(folder, profile.rank) for folder in own]
    if profile.options.dump_ir is not None:
        own += sorted(Path(profile.options.dump_ir).glob("*.ttgir"))
    return [*own, *(file for one in found for file in one.files)]


def _next(profile: Profile, trace: Trace, found: Sequence[CompanionReport]) -> list[str]:
    """Return commands to suggest, which work in the current folder as printed."""
    if profile.options.dump_ir is not None and any(Path(profile.options.dump_ir).glob("*.ttgir")):
        folder = shlex.quote(str(profile.options.dump_ir))
        return [f"edit the files in {folder}, then: {warplens_command()} run --override {folder} SCRIPT"]
    if not len(trace) or profile.path is None:
        return []
    file = shlex.quote(str(shown_path(profile.path)))
    verbs = ["findings {trace}", "report {trace}", "view {trace} --terminal"]
    verbs += [line for one in found for line in one.next]
    return [f"{warplens_command()} {verb.format(trace=file)}" for verb in verbs]


def short(kernel: str, most: int = 40) -> str:
    """Shorten a kernel name in the middle, because long names differ at their ends."""
    return kernel if len(kernel) <= most else f"{kernel[: most - 16]}…{kernel[-15:]}"


def _name(one: KernelSummary) -> str:
    """Shorten a kernel's name, but never what tells its variants apart."""
    return short(one.kernel) + one.variant.removeprefix(one.kernel)


def _region(name: str) -> str:
    """Shorten the hashes that Inductor uses as file names; their ends still differ."""
    return re.sub(r"\b\w{30,}(\w{4}\.py:)", r"…\1", name)


def shown_path(path: Path) -> Path:
    """A path as the user would type it: relative to the working directory if it lies below."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
