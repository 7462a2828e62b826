"""The command line: one verb, one file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from warplens import __version__
from warplens.commands.shared.ascii_fallback import with_ascii_fallback
from warplens.errors import WarplensError, closest, did_you_mean

_VERBS = {
    "demo": "profile a small kernel, with or without a GPU",
    "run": "run a program as it is and record its kernels",
    "info": "what a trace or capture holds, and how far to trust it",
    "stats": "how long each region takes",
    "view": "the Perfetto UI, or a timeline in the terminal",
    "report": "one HTML file that shows a trace, or compares two",
    "diff": "what changed between two traces, and whether it may",
    "bench": "time kernels over sizes and implementations, check them, plot and compare",
    "diagnose": "what limits a kernel, and which common troubles it has",
    "roofline": "how far a kernel is from what the device can do",
    "occupancy": "how many blocks fit on an SM, what limits them and what would lift it",
    "export": "write Perfetto, Chrome, Hatchet, CSV or Parquet",
    "nvcc": "compile CUDA C++ with nvcc and weave the marks of warplens.cuh",
    "doctor": "what this machine has and what is missing",
}


class _Verbs(click.Group):
    """Loads a verb's module only when it is used, so that the command line answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        command: click.Command = import_module(f"warplens.commands.{name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"no verb {args[0]!r}{did_you_mean(args[0], _VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(_VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warplens")
def cli() -> None:
    """See inside a GPU kernel: which warp did what, when, for how many cycles, on which SM."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 usage, 3 a threshold was crossed)."""
    try:
        result = cli.main(args=None if argv is None else list(argv), prog_name="warplens", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except WarplensError as error:
        _complain(f"warplens: {error}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("warplens: interrupted")
        return 130
    except BrokenPipeError:
        _silence()  # a closed pager is not a failure
        return 0
    except OSError as error:
        if error.filename is None:  # a stream's: what is printed has nowhere to go
            _silence()
        _complain(f"warplens: {error.filename or 'standard output'}: {error.strerror or error}")
        return 1
    except MemoryError:
        _complain("warplens: out of memory; select part of the trace, or use a machine with more")
        return 1


def _silence() -> None:
    """Point stdout elsewhere: what it still holds would raise again when Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(error: click.ClickException) -> None:
    """Click's complaints in one line, as ours are; `warplens` alone still shows its verbs."""
    ctx, message = getattr(error, "ctx", None), error.format_message().rstrip(".")
    message = message.replace("not a valid integer range", "not a whole number").replace("valid float range", "number")
    if "\n" in message:
        error.show()
        return
    if isinstance(error, click.NoSuchOption):
        message = f"no such option {error.option_name!r}{_meant(error.option_name, ctx)}"
    command = "warplens" if ctx is None else ctx.command_path
    _complain(f"{command}: {message[:1].lower()}{message[1:]}; see {command} --help")


def _meant(option: str, ctx: click.Context | None) -> str:
    """Click compares with the dashes, which all options share: --sm would be what --json meant."""
    names = [name for one in ctx.command.params for name in one.opts if name.startswith("--")] if ctx else []
    close = closest(option.lstrip("-"), (name[2:] for name in names))
    return f" (did you mean '--{close}'?)" if close else ""


def _complain(line: str) -> None:
    click.echo(line, with_ascii_fallback(sys.stderr))


def entry() -> None:
    """The installed `warplens` script."""
    sys.exit(main())
