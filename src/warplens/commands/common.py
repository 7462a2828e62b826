"""What every verb shares: options, the two output streams, tables and number formats."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click
from rich.console import Console
from rich.text import Text

from warplens.commands.plain import make_plain
from warplens.decode.trace_loader import load
from warplens.trace.model import Trace
from warplens.view.adaptive_table import AdaptiveTable

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
force_option = click.option("--force", is_flag=True, help="Overwrite existing files.")


_PIPE = 10_000
"""Columns of a pipe or a file: what reads it wants every column and every name, whole."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program with code 1; `warplens stats t.warplens | head` is no failure, as `main` knows."""
        raise BrokenPipeError


def stdout() -> Console:
    """Results. Rich drops colour by itself when NO_COLOR is set or this is not a terminal."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Narration and progress."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    return _Console(file=make_plain(stream), highlight=False, width=None if stream.isatty() else _PIPE)


def print_hanging(console: Console, head: str, text: str) -> None:
    """`head` and a paragraph beside it, both markup. A terminal shows whole words in a block behind the head; a pipe
    gets one line, which is what grep wants."""
    if not console.is_terminal:
        console.print(f"{head}{text}", soft_wrap=True)
        return
    indent = Text.from_markup(head).cell_len
    for line in Text.from_markup(text).wrap(console, max(console.width - indent, 20)):
        line.rstrip()
        console.print(Text.from_markup(head) + line, soft_wrap=True)
        head = " " * indent


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1, default=str))


@contextmanager
def working(message: str) -> Iterator[None]:
    """A spinner on stderr for work that may take a while; silent unless stderr is a terminal."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    with console.status(message):
        yield


def read_trace(path: str) -> Trace:
    """Load a trace or decode a capture, with a spinner."""
    with working(f"reading {path}"):
        return load(path)


def table(
    title: str,
    columns: Sequence[tuple[str, Callable[[Any], str]]],
    rows: Sequence[Any],
    spare: Sequence[str] = (),
) -> AdaptiveTable:
    """A rich table: the first column is text, the others are numbers; `spare` go first where there is no room."""
    made = AdaptiveTable(title=title, title_justify="left", spare=spare)
    for i, (name, _) in enumerate(columns):
        made.add_column(name, justify="left" if i == 0 or name == "region" else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(render(row) for _, render in columns))
    return made
