"""What verbs that run a program have in common: where their options end, and which program it is."""

from __future__ import annotations

import click

from warplens.errors import UsageError
from warplens.runner.program import TargetProgram
from warplens.runner.run_arguments import split, split_mixed
from warplens.runner.target_check import check_module, check_script


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
