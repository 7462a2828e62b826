"""`warplens run --list-kernels`: which kernels a program ran, how often, how long, and which can be marked."""

from __future__ import annotations

import re

from rich.markup import escape

from warplens.analyse.kernel_list import ListedKernel, list_kernels
from warplens.commands.common import print_json, stderr, stdout, table
from warplens.commands.run_report import short
from warplens.errors import WarplensError
from warplens.frontends import import_hook
from warplens.runner.activity import Activity
from warplens.runner.program import Outcome, Program, execute
from warplens.runner.streams import stdout_to_stderr
from warplens.session import Profile
from warplens.wording import duration, plural

_NONE = "(?!)"
"""A pattern that no kernel matches: front ends attach as for automatic marks, weave nothing, and count launches."""
_COLUMNS = [
    ("kernel", lambda row: escape(short(row.kernel, 60))),
    ("launches", lambda row: f"{row.launches:,}"),
    ("total", lambda row: "-" if row.total_ns is None else duration(row.total_ns)),
    ("mean", lambda row: "-" if row.mean_ns is None else duration(row.mean_ns)),
    ("can be marked", lambda row: "yes" if row.markable else "no"),
]


def run(program: Program, *, kernels: str | None, as_json: bool) -> int:
    """Run the program unmarked and list its kernels; gives the exit code."""
    profile, activity = Profile(kernels=_NONE, auto=True), Activity()
    profile.gives_way = True
    pattern = Profile(kernels=kernels).options
    with stdout_to_stderr(as_json):
        outcome = _watched(program, profile, activity)
    rows = list_kernels(activity.times, profile.seen, profile.notes)
    chosen = [row for row in rows if pattern.wants_kernel(row.kernel)]
    if as_json:
        print_json(
            {
                "program": [program.target, *program.arguments],
                "exit_code": outcome.code,
                "timed": activity.complete,
                "problem": activity.problem or None,
                "kernels": [row.to_json() for row in chosen],
            }
        )
    else:
        _print(chosen, activity)
    if outcome.code:
        return outcome.code
    if not rows:
        raise WarplensError(f"{program.target} launched no kernel ({activity.problem or 'none was seen'})")
    if not chosen:
        names = ", ".join(short(row.kernel) for row in rows[:12])
        raise WarplensError(f"--kernels {kernels}: matches none of the {plural(len(rows), 'kernel')} that ran: {names}")
    return 0


def _watched(program: Program, profile: Profile, activity: Activity) -> Outcome:
    activity.start()
    profile.resume()
    stop = import_hook.watch(lambda library, error: profile.note(library, str(error)))
    try:
        return execute(program)
    finally:
        stop()
        profile.pause()
        activity.stop()


def _print(rows: list[ListedKernel], activity: Activity) -> None:
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
    if activity.problem:
        stderr().print(f"times: {escape(activity.problem)}", soft_wrap=True)
    best = next((row for row in rows if row.markable), None)
    if best is not None:
        stderr().print(f"next: add --auto --kernels {escape(re.escape(best.kernel))} to see inside", soft_wrap=True)
