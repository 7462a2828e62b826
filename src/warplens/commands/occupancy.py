"""`warplens occupancy`: compute how many blocks fit on an SM and what limits them."""

from __future__ import annotations

from dataclasses import asdict

import click

from warplens.analyse.devices import find_peak
from warplens.commands.shared.console import json_option, print_json, stdout
from warplens.commands.shared.quantities import amount
from warplens.driver.limits import SM_LIMITS
from warplens.driver.theoretical_occupancy import occupancy
from warplens.wording import percent, plural


@click.command("occupancy")
@click.option("--threads", required=True, type=int, metavar="N", help="Threads per block.")
@click.option("--registers", default=0, type=int, metavar="N", help="Registers per thread; 0 means unknown.")
@click.option("--shared", default="0", metavar="BYTES", help="Shared memory per block, such as 36864 or 36KiB.")
@click.option(
    "--capability", default="9.0", metavar="CC", help="Compute capability or device name, such as 9.0 or H100."
)
@json_option
def command(threads: int, registers: int, shared: str, capability: str, as_json: bool) -> None:
    """Compute the theoretical occupancy of a kernel from the resources that a block uses.

    For the achieved occupancy of a recorded kernel, use `warplens stats TRACE --show occupancy`.
    """
    device = find_peak(capability)
    known = device.capability if device and capability not in SM_LIMITS else capability
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
    console.print(f"to raise it: {result.lift}")
