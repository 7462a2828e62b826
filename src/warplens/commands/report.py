"""`warplens report`: write a self-contained HTML report of one trace, or of two compared."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import click
from rich.markup import escape

from warplens.analyse.devices import DTYPES
from warplens.analyse.region_counters import region_counters
from warplens.analyse.roofline import roofline
from warplens.commands.shared.console import (
    force_option,
    json_option,
    merge_variants_option,
    print_json,
    stderr,
    working,
)
from warplens.commands.shared.number_range import number_range
from warplens.commands.shared.quantities import amount
from warplens.commands.shared.rank_options import ranks_option, read_ranks
from warplens.commands.shared.roofline_options import (
    bytes_option,
    ceilings_option,
    device_option,
    flops_option,
    read_ceilings,
)
from warplens.errors import UsageError
from warplens.files import check_writable
from warplens.runner.nsight_compute import read_source_pages


@click.command("report")
@click.argument("traces", nargs=-1, metavar="TRACE [OTHER]")
@click.option("-o", "--output", metavar="FILE", help="File to write.  [default: TRACE with the suffix .html]")
@click.option(
    "--limit",
    type=number_range(int, 0),
    metavar="N",
    help="Maximum number of spans in the timeline; 0 keeps all.  [default: 2,000,000]",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="DIR",
    help="Folder to read the kernel's source from, besides the working directory (repeatable).",
)
@flops_option
@bytes_option
@click.option("--dtype", default="fp16", type=click.Choice(DTYPES), help="Compute peak to compare with.")
@device_option
@ceilings_option
@click.option(
    "--ncu",
    metavar="REPORT",
    help="Show the stalls of each region from an Nsight Compute report with a source page (.csv or .ncu-rep).",
)
@ranks_option
@merge_variants_option
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
    ncu: str | None,
    ranks: str | None,
    merge_variants: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write TRACE as one self-contained HTML file; with OTHER, compare the two traces.

    With --flops or --bytes, the report includes a roofline.
    """
    if not 1 <= len(traces) <= 2:
        raise UsageError(f"expected one trace, or two to compare; got {len(traces)}")
    target = Path(output) if output else Path(traces[0]).with_suffix(".html")
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{target}: a report must be an .html file; use `warplens export` for other formats")
    check_writable(target, force=force)
    folders = [Path(folder) for folder in sources]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--source {folder}: no such folder")
    from warplens.view import html

    work, traffic = amount(flops, "--flops"), amount(moved, "--bytes")
    if (device or ceilings) and not (work or traffic):
        raise UsageError("--device and --ceilings need --flops or --bytes as well")
    name, measured = read_ceilings(ceilings) if ceilings else (None, None)
    loaded = [read_ranks(path, ranks) for path in traces]
    placed = loaded if work or traffic else []
    roofs = [
        roofline(trace, flops=work, bytes=traffic, dtype=dtype, device=device or name, measured=measured)
        for trace in placed
    ]
    pages = read_source_pages(ncu) if ncu else ()
    options = html.ReportOptions(
        counters=[region_counters(trace, pages) for trace in loaded] if ncu else (),
        limit=html.LIMIT if limit is None else limit,
        roofs=roofs,
        sources=[*folders, Path.cwd()],
        labels=[_label(path) for path in traces],
        merge_variants=merge_variants,
        made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    with working(f"writing {target}"):
        page = html.render(loaded, options)
        html.store(page, target, force=force)
    size = target.stat().st_size
    if as_json:
        spans = [len(trace) for trace in loaded]
        print_json({"file": str(target), "bytes": size, "spans": spans, "sources": page.embedded})
    else:
        stderr().print(f"wrote {escape(str(target))} ({size / 1e6:,.1f} MB); open it in a browser")
        if page.embedded:
            stderr().print(f"it holds lines of {', '.join(page.embedded)}", markup=False, soft_wrap=True)


def _label(path: str) -> str:
    """Return the file name without folders, which should not leak into a report that is passed on."""
    return os.fsencode(Path(path).name).decode(errors="replace")
