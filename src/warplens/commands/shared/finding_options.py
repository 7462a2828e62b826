"""Options of the verbs that show findings: what is known of a kernel beyond its trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from warplens.analyse.devices import DTYPES
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.ncu import NcuKernel, match_kernel
from warplens.commands.shared.quantities import amount
from warplens.commands.shared.roofline_options import (
    bytes_option,
    ceilings_option,
    flops_option,
    read_ceilings,
)
from warplens.errors import UsageError, WarplensError, did_you_mean
from warplens.runner.nsight_compute import read_ncu
from warplens.trace.model import Trace

roof_option = click.option(
    "--roof", metavar="|".join(DTYPES), help="Compute peak to compare a trace with.  [default: fp16]"
)
ncu_option = click.option(
    "--ncu", metavar="REPORT", help="Use the counters of an Nsight Compute report (.csv or .ncu-rep)."
)
waits_option = click.option("--waits", metavar="REGEX", help="Additional regions to treat as waits.")


def fact_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `known_facts` reads."""
    for option in (waits_option, ceilings_option, ncu_option, roof_option, bytes_option, flops_option):
        command = option(command)
    return command


def check_roof(roof: str | None) -> None:
    if roof not in (None, *DTYPES):
        raise UsageError(f"--roof {roof!r}: unknown type{did_you_mean(roof, DTYPES)}")


def known_facts(given: dict[str, Any], trace: Trace, kernel: str | None = None) -> KnownFacts:
    """What the options say about the kernels of a trace."""
    check_roof(given["roof"])
    return KnownFacts(
        flops=amount(given["flops"], "--flops"),
        bytes=amount(given["moved"], "--bytes"),
        dtype=given["roof"] or "fp16",
        measured=read_ceilings(given["ceilings"])[1] if given["ceilings"] else None,
        ncu=read_report(given["ncu"], kernel, trace),
        work_of=kernel,
    )


def read_report(report: str | None, kernel: str | None, trace: Trace) -> tuple[NcuKernel, ...]:
    """The kernels of an Nsight Compute report that are in the trace; empty without a report."""
    if report is None:
        return ()
    wanted = [kernel.partition("[")[0]] if kernel else trace.kernels
    found = tuple(one for one in read_ncu(report) if match_kernel(one.kernel, wanted))
    if not found:
        raise WarplensError(f"{report}: contains none of these kernels: {', '.join(wanted)}")
    return found
