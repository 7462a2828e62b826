"""`warplens mcp`: serve traces to agents over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from warplens.agents.server import make_server
from warplens.agents.workspace import Workspace


@click.command("mcp")
@click.argument("folder", default=".", metavar="[FOLDER]")
@click.option(
    "--run-in",
    metavar="FOLDER",
    help="Folder whose Python programs the agent may run and profile.  [default: it may run none]",
)
def command(folder: str, run_in: str | None) -> None:
    """Serve the traces below FOLDER to an agent, over standard input and output.

    The agent can list traces and kernels, get findings, statistics and comparisons, read the source around a region,
    and check regions against the machine code. With --run-in it can also profile programs of that folder.

    \b
    Example, as an agent's configuration:
      {"command": "warplens", "args": ["mcp", "traces", "--run-in", "."]}
    """
    make_server(Workspace(Path(folder), None if run_in is None else Path(run_in))).run("stdio")
