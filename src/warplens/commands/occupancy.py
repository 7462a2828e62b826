"""`warplens occupancy`: how many blocks fit on an SM, what limits them, and what would lift the limit."""

from __future__ import annotations

from dataclasses import asdict

import click

from warplens.analyse.devices import LIMITS, find_peak
from warplens.analyse.occupancy import occupancy
from warplens.commands.common import json_option, print_json, stdout
from warplens.commands.roofline import amount
from warplens.wording import percent, plural


@click.command("occupancy")
@click.option("--threads", required=True, type=int, help="Threads per block.")
@click.option("--registers", default=0, type=int, help="Registers per thread; 0 is unknown.")
@click.option("--shared", default="0", metavar="BYTES", help="Shared memory per block: 36864 or 36KiB.")
@click.option("--capability", default="9.0", show_default=True, metavar="CC", help="Compute capability or device name.")
@json_option
def command(threads: int, registers: int, shared: str, capability: str, as_json: bool) -> None:
    """Theoretical occupancy of a kernel. Achieved occupancy: warplens stats TRACE --show occupancy."""
    device = find_peak(capability)
    known = device.capability if device and capability not in LIMITS else capability
    result = occupancy(threads, registers, int(amount(shared, "--shared") or 0), known)
    if as_json:
        print_json(asdict(result) | {"capability": known})
        return
    console = stdout()
    blocks = plural(result.blocks, "block")
    console.print(f"{blocks} per SM, {result.warps} warps: {percent(result.share)} of the warp slots")
    for name, count in result.allowed.items():
        mark = " [yellow]limits[/]" if name in result.limiters else ""
        console.print(f"  {name:<14} allow {count:>3}{mark}")
    console.print(f"to fit more: {result.lift}")
