"""What `warplens run` says at the end: a table, the files, the next commands; or the same as JSON."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from warplens.analyse.run_summary import KernelSummary, summarise, unmarked
from warplens.analyse.trace_quality import warnings_of
from warplens.commands import again
from warplens.commands.common import stderr, table
from warplens.errors import WarplensError
from warplens.runner.companion import Found
from warplens.runner.program import Outcome, Program
from warplens.session import Profile
from warplens.trace.model import Trace, empty_table
from warplens.wording import duration, percent, plural

WHOLE = 0.9
"""What `--auto all` is to account for of each warp's life."""
_EXPLAINED = 8
"""Kernels, the longest ones, whose regions are told."""
_COLUMNS = [
    ("kernel", lambda one: escape(short(one.kernel))),
    ("launches", lambda one: f"{one.recorded:,}" + (f" of {one.ran:,}" if one.ran > one.recorded else "")),
    ("mean", lambda one: duration(one.mean_ns)),
    ("total", lambda one: duration(one.total_ns)),
    ("regions", lambda one: f"{one.regions:,}"),
    ("records/warp", lambda one: f"{one.records_per_warp:,.0f}"),
    ("slowdown", lambda one: _slowdown(one)),
    ("covered", lambda one: "-" if one.covered_median is None else percent(one.covered_median)),
    ("least warp", lambda one: "-" if one.covered_least is None else percent(one.covered_least)),
]


def describe(profile: Profile, outcome: Outcome, found: Sequence[Found] = (), *, asked_for: bool = False) -> None:
    """The summary, on stderr: stdout is the program's. `asked_for` is whether the user chose how many launches."""
    console = stderr()
    trace = trace_of(profile)
    if outcome.cut_short and len(trace):
        console.print("[yellow]the program did not end by itself; the trace holds what ran until then[/]")
    if len(trace):
        console.print()
        kernels = summarise(trace, profile.seen)
        console.print(table("kernels", _COLUMNS, kernels))
        for one in kernels[:_EXPLAINED]:
            where = ", ".join(f"{escape(_region(name))} {percent(share)}" for name, share in one.top)
            console.print(f"[dim]{escape(short(one.kernel))}:[/] {where}", soft_wrap=True)
        for one in kernels if profile.options.marks.whole else ():
            if one.covered_least is not None and one.covered_least < WHOLE:
                why = "; ".join(profile.notes.get(one.kernel, ()))
                console.print(
                    f"[yellow]{escape(short(one.kernel))}: a warp spends up to {percent(1 - one.covered_least)} of its "
                    f"life in no region{escape(f' ({why})' if why else '')}[/]",
                    soft_wrap=True,
                )
        if not asked_for and any(one.ran > one.recorded for one in kernels):
            most = profile.options.launches
            console.print(f"the first {most} launches of each kernel are in the trace; --launches all records all")
        for line in warnings_of(trace):
            console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    left = unmarked(trace, profile.seen, profile.notes)
    if left and len(trace):
        console.print(f"{plural(len(left), 'kernel')} ran unmarked:")
        for kernel, reason in left.items():
            console.print(f"  {escape(short(kernel))}: {escape(reason or 'no marks')}", soft_wrap=True)
    for made in (made for one in found for made in one.tables):
        console.print(made)
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


def document(
    program: Program,
    profile: Profile,
    outcome: Outcome,
    problem: WarplensError | None,
    found: Sequence[Found] = (),
) -> dict[str, Any]:
    """The same as one JSON document."""
    trace = trace_of(profile)
    return {
        "program": [program.target, *program.arguments],
        "exit_code": outcome.code,
        "ended_by": type(outcome.error).__name__ if outcome.error is not None else None,
        "file": str(profile.path) if len(trace) else None,
        "files": [str(file) for file in _files(profile, trace, found)],
        "spans": len(trace),
        "kernels": [one.to_json() for one in summarise(trace, profile.seen)],
        "unmarked": unmarked(trace, profile.seen, profile.notes),
        "notes": profile.notes,
        "warnings": warnings_of(trace) if len(trace) else [],
        "problem": str(problem) if problem is not None else None,
        "companions": [one.document for one in found],
        "next": _next(profile, trace, found),
    }


def trace_of(profile: Profile) -> Trace:
    """The profile's trace, an empty one where it came to none."""
    try:
        return profile.trace
    except WarplensError:
        return Trace(empty_table())


def _files(profile: Profile, trace: Trace, found: Sequence[Found]) -> list[Path]:
    own = [profile.path] if len(trace) and profile.path is not None else []
    if profile.options.dump_ir is not None:
        own += sorted(Path(profile.options.dump_ir).glob("*.ttgir"))
    return [*own, *(file for one in found for file in one.files)]


def _next(profile: Profile, trace: Trace, found: Sequence[Found]) -> list[str]:
    """Commands that work as they are printed, from where the user stands."""
    if profile.options.dump_ir is not None and any(Path(profile.options.dump_ir).glob("*.ttgir")):
        folder = shlex.quote(str(profile.options.dump_ir))
        return [f"edit the files in {folder}, then: {again.program()} run --override {folder} SCRIPT"]
    if not len(trace) or profile.path is None:
        return []
    file = shlex.quote(str(profile.path))
    verbs = ["stats {trace} --findings", "report {trace}", "view {trace} --terminal"]
    verbs += [line for one in found for line in one.next]
    return [f"{again.program()} {verb.format(trace=file)}" for verb in verbs]


def short(kernel: str, most: int = 40) -> str:
    """Long names differ at their ends."""
    return kernel if len(kernel) <= most else f"{kernel[: most - 16]}…{kernel[-15:]}"


def _slowdown(one: KernelSummary) -> str:
    """What marks made of the kernel's time, and whether that was measured."""
    if one.measured is not None:
        return f"{one.measured:.2f}x measured"
    return "-" if one.estimated is None else f"{one.estimated:.2f}x estimated"


def _region(name: str) -> str:
    """Files that Inductor writes are called by a hash: its end tells them apart."""
    return re.sub(r"\b\w{30,}(\w{4}\.py:)", r"…\1", name)
