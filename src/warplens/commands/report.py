"""`warplens report`: one HTML file that shows a trace, or compares two."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import click
from rich.markup import escape

from warplens.analyse.devices import DTYPES
from warplens.analyse.roofline import roofline
from warplens.commands.common import force_option, json_option, print_json, read_trace, stderr, working
from warplens.commands.roofline import amount, read_ceilings
from warplens.errors import UsageError
from warplens.files import check_writable


@click.command("report")
@click.argument("traces", nargs=-1, metavar="TRACE [OTHER]")
@click.option("-o", "--output", default=None, metavar="FILE", help="Where to write (default: TRACE with .html).")
@click.option("--limit", default=None, type=click.IntRange(min=0), help="Most spans in the timeline; 0 keeps all.")
@click.option("--source", "sources", multiple=True, metavar="DIR", help="Folder of the kernel's source (repeatable).")
@click.option("--flops", default=None, metavar="N", help="FLOPs per launch, for a roofline: 137e9 or 2*4096*4096*4096.")
@click.option("--bytes", "moved", default=None, metavar="N", help="Bytes to and from memory per launch.")
@click.option("--dtype", default="fp16", type=click.Choice(DTYPES), show_default=True, help="Which compute roof.")
@click.option("--device", default=None, help="For the roofline, this device's listed peaks, for example H100.")
@click.option(
    "--ceilings", default=None, metavar="FILE", help="A measured roof: what `roofline --measure --json` wrote."
)
@force_option
@json_option
def command(
    traces: tuple[str, ...],
    output: str | None,
    limit: int | None,
    sources: tuple[str, ...],
    flops: str | None,
    moved: str | None,
    dtype: str,
    device: str | None,
    ceilings: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write TRACE as one HTML file that needs nothing else; with OTHER, compare the two."""
    if not 1 <= len(traces) <= 2:
        raise UsageError(f"name one trace, or two to compare; {len(traces)} were given")
    target = Path(output) if output else Path(traces[0]).with_suffix(".html")
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{target}: a report is an .html file; other formats: warplens export")
    check_writable(target, force=force)
    folders = [Path(folder) for folder in sources]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--source {folder}: not a folder")
    from warplens.view import html

    work, traffic = amount(flops, "--flops"), amount(moved, "--bytes")
    if (device or ceilings) and not (work or traffic):
        raise UsageError("--device and --ceilings go with --flops and --bytes, which place the kernel")
    name, measured = read_ceilings(ceilings) if ceilings else (None, None)
    loaded = [read_trace(path) for path in traces]
    placed = loaded if work or traffic else []
    roofs = [
        roofline(trace, flops=work, bytes=traffic, dtype=dtype, device=device or name, measured=measured)
        for trace in placed
    ]
    options = html.ReportOptions(
        limit=html.LIMIT if limit is None else limit,
        roofs=roofs,
        sources=[*folders, Path.cwd(), *(Path(path).resolve().parent for path in traces)],
        labels=[_label(path) for path in traces],
        made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    with working(f"writing {target}"):
        html.save(loaded, target, options, force=True)
    size = target.stat().st_size
    if as_json:
        print_json({"file": str(target), "bytes": size, "spans": [len(trace) for trace in loaded]})
    else:
        stderr().print(f"wrote {escape(str(target))} ({size / 1e6:,.1f} MB); open it in any browser, no server needed")


def _label(path: str) -> str:
    """The file's name alone: a report is passed on, and folders are nobody's business."""
    return os.fsencode(Path(path).name).decode(errors="replace")
