"""`warplens run`: a program as it is, its kernels recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from warplens.auto.rules import ALL, CLASSES, MOST_MARKS
from warplens.commands import run_list
from warplens.commands.common import force_option, json_option, print_json, stderr
from warplens.commands.run_report import describe, document
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable
from warplens.profiling.profile import Profile
from warplens.runner.arguments import numbers, split
from warplens.runner.companion import COMPANIONS, Companion, Found, companion
from warplens.runner.program import Outcome, Program, execute
from warplens.runner.streams import stdout_to_stderr
from warplens.runner.target import check_module, check_script

AUTO_LAUNCHES = 10
"""Of each kernel with automatic marks, the launches recorded unless told otherwise: a training run has thousands."""
_PLAIN = (
    "auto",
    "kernels",
    "every",
    "strict",
    "most_marks",
    "least_occupancy",
    "records_per_warp",
    "full",
    "clock",
    "granularity",
)
"""Options that go to the profile as they are."""


def companion_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One flag for each companion."""
    for name, (_, help_text) in reversed(COMPANIONS.items()):
        command = click.option(f"--{name}", is_flag=True, help=help_text)(command)
    return command


class _Run(click.Command):
    """Our options end where the program begins; what follows it is the program's, dashes and all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with_value = [
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        ]
        ours, program = split(args, with_value)
        return super().parse_args(ctx, [*ours, "--", *program])


@click.command("run", cls=_Run, options_metavar="[OPTIONS]")
@click.option("-m", "module", default=None, metavar="MODULE", help="Run a module, as python -m does.")
@click.option(
    "--auto",
    default=None,
    metavar="[CLASSES]",
    help=f"Mark kernels without touching their source: any of {', '.join(CLASSES)}, {ALL}; alone: the usual ones.",
)
@click.option("--region", "regions", multiple=True, metavar="NAME=FILE:A-B", help="A region by source lines.")
@click.option("--kernels", default=None, metavar="REGEX", help="Only kernels whose name matches.")
@click.option(
    "--launches",
    default=None,
    metavar="N|all",
    help=f"Record only N launches of each kernel; default: all, {AUTO_LAUNCHES} with automatic marks.",
)
@click.option("--every", default=1, metavar="N", help="Record every N-th launch of a kernel.")
@click.option("-o", "--output", default=None, metavar="FILE", help="The trace; default: PROGRAM.warplens.")
@force_option
@click.option("--list-kernels", is_flag=True, help="Only list which kernels ran, how often and how long.")
@click.option("--dump-ir", default=None, metavar="DIR", help="Write one TTGIR file per kernel, to be marked by hand.")
@click.option("--override", default=None, metavar="DIR", help="Compile the marked files of --dump-ir.")
@click.option("--strict", is_flag=True, help="Fail where marks cannot be had or would harm a kernel.")
@click.option("--most-marks", default=MOST_MARKS, metavar="N", help="Sites that --auto may mark in one kernel.")
@click.option(
    "--least-occupancy", default=1.0, metavar="SHARE", help="Of its blocks per SM, what a marked kernel must keep."
)
@click.option("--records-per-warp", default=None, type=int, metavar="N", help="Room for so many records of each warp.")
@click.option("--full", default="stop", metavar="stop|ring", help="A full track keeps its first or latest records.")
@click.option("--clock", default="32", metavar="32|64", help="Bits of the clock in each record.")
@click.option("--granularity", default="warp", metavar="warp|warpgroup|block", help="One track for each of these.")
@click.option("--blocks", default=None, metavar="N|A-B|A,B", help="Record only these blocks; N alone: so many.")
@click.option("--warps", default=None, metavar="A-B|A,B", help="Record only these warps of a block.")
@companion_options
@json_option
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]...")
def command(
    module: str | None,
    output: str | None,
    force: bool,
    list_kernels: bool,
    as_json: bool,
    program: tuple[str, ...],
    **given: Any,
) -> int:
    """Run SCRIPT unchanged and record what its GPU kernels do inside.

    \b
    warplens run --auto train.py --steps 3
    warplens run --list-kernels train.py
    warplens run --kernels 'attn.*' --auto loads,mma,waits --launches 5 -o attn.warplens train.py
    warplens run --region softmax=attn.py:120-134 -m package.train
    """
    target = _program(module, program)
    if list_kernels:
        return run_list.run(target, kernels=given["kernels"], as_json=as_json)
    path = Path(output or _default_output(target))
    profile = Profile(path, whole_program=True, **_options(given))
    check_writable(path, force=force)
    if not profile.enabled:
        stderr().print("warplens is switched off (WARPLENS=0): the program runs as it is")
        return execute(target).code
    asked = [companion(name, target, profile, path, force=force) for name in COMPANIONS if given[name]]
    with stdout_to_stderr(as_json):
        outcome, problem = _run(target, profile, asked)
    with stdout_to_stderr(True):
        found, missed = _after(asked)
    if as_json:
        print_json(document(target, profile, outcome, problem, found))
    else:
        describe(profile, outcome, found, asked_for=given["launches"] is not None)
    for one in (problem, *missed):
        if one is not None:
            stderr().print(f"warplens: {one}", markup=False, soft_wrap=True)
    return outcome.code or next((one.exit_code for one in (problem, *missed) if one is not None), 0)


def _program(module: str | None, words: tuple[str, ...]) -> Program:
    if module is not None:
        check_module(module)
        return Program(module, words, module=True)
    if not words:
        raise UsageError("name the program: warplens run [OPTIONS] SCRIPT.py [ARGUMENTS], or -m MODULE [ARGUMENTS]")
    check_script(words[0])
    return Program(words[0], words[1:])


def _default_output(program: Program) -> Path:
    """Beside where the user stands; each rank of a distributed run has its own."""
    several = int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
    rank = f".rank{os.environ.get('RANK', '0')}" if several else ""
    return Path(f"{program.name}{rank}.warplens")


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """What the command line asks of the profile."""
    warps, blocks = given["warps"], given["blocks"]
    folders = {name: given[name] for name in ("dump_ir", "override") if given[name] is not None}
    return {
        **{name: given[name] for name in _PLAIN},
        **folders,
        "launches": _launches(given),
        "regions": given["regions"] or None,
        "torch": given["torch"],
        "warps": None if warps is None else numbers(warps, "--warps"),
        "blocks": None if blocks is None else _blocks(blocks),
    }


def _launches(given: dict[str, Any]) -> int | None:
    text = given["launches"]
    if text is None:
        return AUTO_LAUNCHES if given["auto"] or given["regions"] else None
    if text != "all" and not text.isdigit():
        raise UsageError(f"--launches {text}: write a number, or all")
    return None if text == "all" else int(text)


def _blocks(text: str) -> int | list[int]:
    return int(text) if text.isdigit() else numbers(text, "--blocks")


def _run(program: Program, profile: Profile, companions: Sequence[Companion]) -> tuple[Outcome, WarplensError | None]:
    """The program inside the profile; what went wrong with the profile does not hide how the program ended."""
    outcome = Outcome()
    try:
        with profile, ExitStack() as stack:
            for one in companions:
                stack.enter_context(one.around())
            outcome = execute(program)
    except WarplensError as error:
        # That nothing was recorded needs no second reason.
        if isinstance(outcome.error, WarplensError):
            return outcome, None
        if outcome.cut_short and not profile.seen:
            ended = type(outcome.error).__name__
            return outcome, WarplensError(f"nothing was recorded: {ended} ended the program before its first kernel")
        return outcome, error
    return outcome, None


def _after(companions: Sequence[Companion]) -> tuple[list[Found], list[WarplensError]]:
    """What the companions found; one that fails does not take the others along."""
    found, missed = [], []
    for one in companions:
        try:
            found.append(one.after())
        except WarplensError as error:
            missed.append(error)
    return found, missed
