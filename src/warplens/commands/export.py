"""`warplens export`: write another format."""

from __future__ import annotations

from pathlib import Path

import click

from warplens.commands.common import force_option, json_option, print_json, read_trace, stderr, working
from warplens.errors import UsageError
from warplens.export import chosen_format, export, merge
from warplens.files import check_writable


@click.command("export")
@click.argument("trace")
@click.argument("output", required=False)
@click.option(
    "-o", "--output", "option_output", default=None, metavar="FILE", help="Where to write; its suffix picks the format."
)
@click.option("--annotate/--no-annotate", default=None, help="Cycles on every slice (default: up to 200,000 spans).")
@click.option(
    "--torch", default=None, metavar="FILE", help="Merge the trace that torch.profiler exported of the same run."
)
@force_option
@json_option
def command(
    trace: str,
    output: str | None,
    option_output: str | None,
    annotate: bool | None,
    torch: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write TRACE as OUTPUT: .pftrace .json .json.gz .hatchet .csv .parquet .html .png .svg"""
    if output is not None and option_output is not None:
        raise UsageError(f"two files to write, {output} and {option_output}: name one")
    target = option_output or output
    if target is None:
        raise UsageError("name the file to write, for example: warplens export t.warplens -o t.pftrace")
    chosen_format(target)
    check_writable(target, force=force)
    loaded = read_trace(trace)
    with working(f"writing {target}"):
        merged = None if torch is None else merge(loaded, torch, target, annotate=annotate)
        written = export(loaded, target, force=True, annotate=annotate) if merged is None else Path(target)
    size = Path(written).stat().st_size
    if as_json:
        alignment = {} if merged is None else {"alignment": [one.to_json() for one in merged.alignments]}
        print_json({"file": str(written), "bytes": size, "spans": len(loaded)} | alignment)
        return
    stderr().print(f"wrote {written} ({size:,} bytes, {len(loaded):,} spans)")
    for one in merged.alignments if merged is not None else ():
        stderr().print(f"aligned with torch: {one}", soft_wrap=True)
