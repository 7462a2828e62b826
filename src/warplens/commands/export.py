"""`warplens export`: convert a trace to another format."""

from __future__ import annotations

from pathlib import Path

import click

from warplens.commands.shared.console import force_option, json_option, print_json, stderr, working
from warplens.commands.shared.rank_options import ranks_option, read_ranks
from warplens.errors import UsageError
from warplens.export import chosen_format, export, merge
from warplens.files import check_writable
from warplens.formats import FORMATS

_FORMATS = "\n".join(f"  {one.suffix:<10}{one.description}" for one in FORMATS.values())


@click.command("export", help=f"Convert TRACE to the format of OUTPUT's suffix.\n\n\b\n{_FORMATS}")
@click.argument("trace")
@click.argument("output", required=False)
@click.option("-o", "--output", "option_output", metavar="FILE", help="File to write; its suffix selects the format.")
@click.option(
    "--annotate/--no-annotate",
    default=None,
    help="Attach cycle counts to every slice.  [default: only in traces of up to 200,000 spans]",
)
@click.option("--torch", metavar="FILE", help="Merge a trace that torch.profiler exported during the same run.")
@ranks_option
@force_option
@json_option
def command(
    trace: str,
    output: str | None,
    option_output: str | None,
    annotate: bool | None,
    torch: str | None,
    ranks: str | None,
    force: bool,
    as_json: bool,
) -> None:
    if output is not None and option_output is not None:
        raise UsageError(f"two output files, {output} and {option_output}; give only one")
    target = option_output or output
    if target is None:
        raise UsageError("no output file; give one, for example: warplens export t.warplens -o t.pftrace")
    chosen_format(target)
    check_writable(target, force=force)
    loaded = read_ranks(trace, ranks)
    with working(f"writing {target}"):
        merged = None if torch is None else merge(loaded, torch, target, force=force, annotate=annotate)
        written = export(loaded, target, force=force, annotate=annotate) if merged is None else Path(target)
    size = Path(written).stat().st_size
    if as_json:
        alignment = {} if merged is None else {"alignment": [one.to_json() for one in merged.alignments]}
        print_json({"file": str(written), "bytes": size, "spans": len(loaded)} | alignment)
        return
    stderr().print(f"wrote {written} ({size:,} bytes, {len(loaded):,} spans)", markup=False)
    for one in merged.alignments if merged is not None else ():
        stderr().print(f"aligned with torch: {one}", soft_wrap=True, markup=False)
