"""What verbs that run a program have in common: which program it is, how it is marked, and where their options end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from warplens.auto.rules import ALL, CLASSES, DEFAULT, MOST_MARKS
from warplens.errors import UsageError
from warplens.runner.program import TargetProgram
from warplens.runner.run_arguments import split, split_mixed
from warplens.runner.target_check import check_module, check_script

_PROGRAM_OPTIONS = (
    click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does."),
    click.option(
        "--auto",
        metavar="[CLASSES]",
        help="Mark kernels automatically, without changing their source. CLASSES is a comma-separated list of "
        f"{', '.join(CLASSES)} or {ALL}.  [default: {','.join(DEFAULT)}]",
    ),
    click.option(
        "--region",
        "lines",
        multiple=True,
        metavar="NAME=FILE:A-B",
        help="Mark lines A to B of a source file as a region (repeatable).",
    ),
    click.option(
        "--most-marks",
        default=MOST_MARKS,
        metavar="N",
        help="Maximum number of places that --auto marks in one kernel.",
    ),
    click.option(
        "--least-occupancy",
        default=1.0,
        metavar="SHARE",
        help="Minimum fraction of blocks per SM that a marked kernel must keep; else it gets fewer marks.",
    ),
    click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]..."),
)


def program_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names the program and says how its kernels are marked."""
    for option in reversed(_PROGRAM_OPTIONS):
        command = option(command)
    return command


class ProgramCommand(click.Command):
    """A command whose options end at the program's name; everything after it belongs to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, program = self.split(args)
        return super().parse_args(ctx, [*ours, "--", *program])

    def split(self, args: list[str]) -> tuple[list[str], list[str]]:
        """Return the options of the verb, and the program with its arguments."""
        return split(args, self.names(flags=False))

    def names(self, *, flags: bool) -> list[str]:
        """The names of the options that are flags, or of those that take a value."""
        options = [option for option in self.params if isinstance(option, click.Option) and option.is_flag is flags]
        return [name for option in options for name in option.opts]


class MixedProgramCommand(ProgramCommand):
    """A command whose long options may also follow the program's name; what follows `--` belongs to the program."""

    def split(self, args: list[str]) -> tuple[list[str], list[str]]:
        return split_mixed(args, self.names(flags=False), [*self.names(flags=True), "--help"])


def target_program(
    verb: str, module: str | None, words: tuple[str, ...], *, marks_given: bool = False
) -> TargetProgram:
    """The program that the command line names; with automatic marks, it may be a compiled one."""
    if module is not None:
        check_module(module)
        return TargetProgram(module, words, module=True)
    if not words:
        usage = f"warplens {verb} [OPTIONS] SCRIPT.py [ARGUMENTS], or -m MODULE [ARGUMENTS]"
        raise UsageError(f"no program to run; usage: {usage}")
    check_script(words[0], marks_given=marks_given)
    return TargetProgram(words[0], words[1:])
