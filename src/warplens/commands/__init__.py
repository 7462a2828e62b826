"""The command line: one file per verb, and `shared/` for what several verbs use."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TextIO

import click

from warplens.commands.shared.ascii_fallback import with_ascii_fallback
from warplens.commands.shared.completion import COMPLETION_VARIABLE, complete_file_names
from warplens.errors import WarplensError, closest, did_you_mean
from warplens.text import printable
from warplens.version import __version__

_VERBS = {
    "demo": "profile a small sample kernel, with or without a GPU",
    "run": "run a Python program unchanged and record its kernels",
    "info": "describe a trace or capture: device, launches, clock error, losses",
    "stats": "show statistics, the region tree and findings of a trace",
    "view": "open a trace in the Perfetto UI, or draw it in the terminal",
    "report": "write a self-contained HTML report of one trace, or of two compared",
    "verify": "check in the machine code that each region times what it marks",
    "diff": "compare two traces and check the changes against limits",
    "bench": "run benchmarks, check their results, plot and compare them",
    "findings": "show what costs time in the kernels of a trace, and what to do about it",
    "diagnose": "show what limits a kernel, and the findings about it",
    "sensitivity": "insert delays to measure which regions a kernel's time depends on",
    "roofline": "compare a kernel with the compute and memory peaks of its device",
    "occupancy": "compute how many blocks fit on an SM and what limits them",
    "export": "convert a trace to Perfetto, Chrome, Hatchet, CSV, Parquet, HTML or an image",
    "mcp": "serve traces to an agent over the Model Context Protocol",
    "nvcc": "compile CUDA C++ with nvcc and weave in the marks of warplens.cuh",
    "doctor": "check which tools and libraries warplens can use here",
}

_FIRST = ("demo", "run", "findings", "report", "diff")
"""The verbs that most people need."""


class _Verbs(click.Group):
    """A group that imports a verb's module only when the verb is used, to keep start-up fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        command: click.Command = import_module(f"warplens.commands.{name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            is_file = os.path.exists(args[0])
            hint = f"; it is a file: try `warplens stats {args[0]}`" if is_file else did_you_mean(args[0], _VERBS)
            raise click.UsageError(f"no verb {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Start here"):
            formatter.write_dl([(verb, _VERBS[verb]) for verb in _FIRST])
        with formatter.section("Other verbs"):
            formatter.write_dl([(verb, said) for verb, said in _VERBS.items() if verb not in _FIRST])


@click.group(
    cls=_Verbs,
    subcommand_metavar="VERB [ARGUMENTS]...",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="warplens")
def cli() -> None:
    """See inside a GPU kernel: which warp did what, when, for how many cycles, on which SM."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 usage error, 3 a threshold was crossed."""
    _open_closed_streams()
    if COMPLETION_VARIABLE in os.environ:
        complete_file_names()
    try:
        result = cli.main(args=None if argv is None else list(argv), prog_name="warplens", standalone_mode=False)
        sys.stdout.flush()  # a full disk is found here, not while Python exits
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except WarplensError as error:
        _print_error(f"warplens: {error}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _print_error("warplens: interrupted")
        return 130
    except BrokenPipeError:
        _discard(sys.stdout)  # a closed pager is not a failure
        return 0
    except OSError as error:
        if _is_folder_gone():
            _print_error("warplens: the current folder was removed; change to one that exists")
            return 1
        if error.filename is None:  # writing to stdout failed
            _discard(sys.stdout)
        _print_error(f"warplens: {error.filename or 'standard output'}: {error.strerror or error}")
        return 1
    except MemoryError:
        _print_error("warplens: out of memory; select part of the trace, or use a machine with more memory")
        return 1


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _open_closed_streams() -> None:
    """Give a program that was started with a closed stdout or stderr a stream to write to: `warplens info t >&-`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _discard(stream: TextIO) -> None:
    """Redirect a stream to /dev/null; otherwise Python fails again when it flushes the stream at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return  # a stream without a file, as in a notebook


def _show(error: click.ClickException) -> None:
    """Print a click error in one line, like our own errors; longer ones, such as the list of verbs, as they are."""
    ctx, message = getattr(error, "ctx", None), error.format_message().rstrip(".")
    if "\n" in message:
        error.show()
        return
    if isinstance(error, click.NoSuchOption):
        message = f"no such option {error.option_name!r}{_suggest_option(error.option_name, ctx)}"
    command = "warplens" if ctx is None else ctx.command_path
    _print_error(f"{command}: {message[:1].lower()}{message[1:]}; see {command} --help")


def _suggest_option(option: str, ctx: click.Context | None) -> str:
    """Suggest a similar option. Click also compares the dashes, and would suggest --sm for --json."""
    names = [name for one in ctx.command.params for name in one.opts if name.startswith("--")] if ctx else []
    close = closest(option.lstrip("-"), (name[2:] for name in names))
    return f" (did you mean '--{close}'?)" if close else ""


def _print_error(line: str) -> None:
    try:
        click.echo(printable(line), with_ascii_fallback(sys.stderr))
    except (OSError, ValueError):
        _discard(sys.stderr)  # stderr is closed: only the exit code is left


def entry() -> None:
    """Run the installed `warplens` script."""
    sys.exit(main())


def nvcc_entry() -> None:
    """Run the installed `warplens-nvcc` script, for builds that take the path of a compiler and no arguments."""
    sys.exit(main(["nvcc", *sys.argv[1:]]))
