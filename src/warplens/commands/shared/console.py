"""The consoles, options, tables and number formats that every verb uses."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from warplens.commands.shared.ascii_fallback import with_ascii_fallback
from warplens.decode.trace_loader import load
from warplens.text import printable
from warplens.trace.model import Trace
from warplens.view.adaptive_table import AdaptiveTable

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
force_option = click.option("--force", is_flag=True, help="Overwrite existing files.")
merge_variants_option = click.option(
    "--merge-variants",
    is_flag=True,
    help="Show one row per kernel, even if it ran with several grids, launch options or constants.",
)


_NESTED_JSON = 10_000
"""How much deeper than other code the JSON encoder may recurse: two calls per level of a region tree."""
_PIPE_COLUMNS = 10_000
"""Width of output to a pipe or a file, so that no column or name is truncated."""
_DEEPEST, _HANGING = 20, 3
"""The widest head that the lines below are indented by, and how far they are below a wider one."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s\b|cycles\b))")
_JOINED = "\ue000"
"""Stands for a space between a number and its unit, where no line may end; rich breaks lines at every other space."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise instead of exiting with code 1, as rich does: `main` treats a closed pipe as success."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with escapes for what names may contain; rich passes control characters on to the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def stdout() -> Console:
    """Return the console for results. Rich omits colours if NO_COLOR is set or stdout is not a terminal."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Return the console for messages and progress."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    return _Console(file=with_ascii_fallback(stream), highlight=False, width=None if stream.isatty() else _PIPE_COLUMNS)


def print_hanging(console: Console, head: str, text: str) -> None:
    """Print `head` followed by a paragraph, both markup: wrapped and indented on a terminal, one line on a pipe."""
    if not console.is_terminal:
        console.print(f"{head}{text}", soft_wrap=True)
        return
    start, rest = Text.from_markup(head), Text.from_markup(text)
    indent = start.cell_len
    if indent > _DEEPEST:  # the paragraph begins behind the head, and goes on below it
        start, rest, indent = Text(), start + rest, _HANGING
    rest.plain = _BEFORE_UNIT.sub(_JOINED, rest.plain)
    for line in rest.wrap(console, max(console.width - indent, 20)):
        line.rstrip()
        line.plain = line.plain.replace(_JOINED, " ")
        console.print(start + line, soft_wrap=True)
        start = Text(" " * indent)


def print_json(document: Any) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _NESTED_JSON)  # the encoder recurses once per level of a region tree
    try:
        text = json.dumps(document, indent=1, default=str)
    finally:
        sys.setrecursionlimit(limit)
    # JSON escapes every other character that would steer a terminal.
    click.echo(text.replace("\x7f", "\\u007f"))


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show a spinner or a progress bar on stderr, if stderr is a terminal."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    from warplens.commands.shared.progress import progress_bar

    with progress_bar(console, message):
        yield


def read_trace(path: str) -> Trace:
    """Load a trace or decode a capture, showing a spinner."""
    with working(f"reading {path}"):
        return load(path)


def table(
    title: str, columns: Sequence[tuple[str, Callable[[Any], str]]], rows: Sequence[Any], spare: Sequence[str] = ()
) -> AdaptiveTable:
    """Build a table of one text column and number columns; `spare` columns are dropped first if space is short."""
    made = AdaptiveTable(title=title, spare=spare)
    for i, (name, _) in enumerate(columns):
        made.add_column(name, justify="left" if i == 0 or name == "region" else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(render(row) for _, render in columns))
    return made
