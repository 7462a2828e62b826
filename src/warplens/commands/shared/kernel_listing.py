"""`warplens run --list-kernels`: list the kernels that ran, their times, and whether they can be marked."""

from __future__ import annotations

import re

from rich.markup import escape

from warplens.analyse.kernel_list import ListedKernel, list_kernels
from warplens.commands.shared.console import print_json, stderr, stdout, table
from warplens.commands.shared.run_report import short
from warplens.errors import WarplensError
from warplens.profiling.profile import Profile
from warplens.runner.kernel_times import KernelTimes
from warplens.runner.program import Outcome, TargetProgram, execute
from warplens.runner.stdout_redirect import stdout_to_stderr
from warplens.wording import duration, plural

_NO_KERNEL = "(?!)"
"""A pattern that matches no kernel: front ends attach and count launches, but mark nothing."""
_COLUMNS = [
    ("kernel", lambda row: escape(short(row.kernel, 60))),
    ("launches", lambda row: f"{row.launches:,}"),
    ("total", lambda row: "-" if row.total_ns is None else duration(row.total_ns)),
    ("mean", lambda row: "-" if row.mean_ns is None else duration(row.mean_ns)),
    ("can be marked", lambda row: "yes" if row.markable else "no"),
]


def run_and_list(program: TargetProgram, *, kernels: str | None, as_json: bool) -> int:
    """Run the program without marks, list its kernels and return the exit code."""
    profile, kernel_times = Profile(kernels=_NO_KERNEL, auto=True, whole_program=True, counts_all=True), KernelTimes()
    pattern = Profile(kernels=kernels).options
    with stdout_to_stderr(as_json):
        outcome = _execute_counted(program, profile, kernel_times)
    rows = list_kernels(kernel_times.times, profile.seen, profile.notes)
    chosen = [row for row in rows if pattern.wants_kernel(row.kernel)]
    if as_json:
        print_json(
            {
                "program": [program.target, *program.arguments],
                "exit_code": outcome.code,
                "timed": kernel_times.complete,
                "problem": kernel_times.problem or None,
                "kernels": [row.to_json() for row in chosen],
            }
        )
    else:
        _print(chosen, kernel_times)
    if outcome.code:
        return outcome.code
    if not rows:
        raise WarplensError(f"{program.target} launched no kernels ({kernel_times.problem or 'none were seen'})")
    if not chosen:
        names = ", ".join(short(row.kernel) for row in rows[:12])
        raise WarplensError(f"--kernels {kernels}: matches none of the {plural(len(rows), 'kernel')} that ran: {names}")
    return 0


def _execute_counted(program: TargetProgram, profile: Profile, kernel_times: KernelTimes) -> Outcome:
    kernel_times.start()
    profile.resume()
    try:
        return execute(program)
    finally:
        profile.pause()
        kernel_times.stop()


def _print(rows: list[ListedKernel], kernel_times: KernelTimes) -> None:
    if not rows:
        return
    console = stdout()
    console.print(table("kernels", _COLUMNS, rows))
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if not row.markable:
            reasons.setdefault(row.reason, []).append(short(row.kernel))
    for reason, names in reasons.items():
        listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        console.print(f"[dim]cannot be marked ({escape(reason)}): {escape(listed)}[/]", soft_wrap=True)
    if kernel_times.problem:
        stderr().print(f"kernel times: {escape(kernel_times.problem)}", soft_wrap=True)
    best = next((row for row in rows if row.markable), None)
    if best is not None:
        stderr().print(f"next: add --auto --kernels {escape(re.escape(best.kernel))} to record it", soft_wrap=True)
