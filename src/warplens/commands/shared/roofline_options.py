"""The roofline options that several verbs share, and their parsing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import click

from warplens.errors import UsageError, WarplensError

_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "kib": 2**10, "mib": 2**20, "gib": 2**30}


flops_option = click.option("--flops", metavar="N", help="FLOPs per launch, such as 137e9, 137G or 2*4096*4096*4096.")
bytes_option = click.option("--bytes", "moved", metavar="N", help="Bytes read and written in memory per launch.")
device_option = click.option(
    "--device",
    metavar="NAME",
    help="Device whose listed peaks to use, such as H100.  [default: the device of the trace]",
)
ceilings_option = click.option(
    "--ceilings",
    metavar="FILE",
    help="Peaks measured with `roofline --measure --json`.  [default: the listed peaks of the device]",
)


def parse_amount(text: str | None, option: str) -> float | None:
    """Parse a number with an optional suffix, or a product of such numbers: 137e9, 137G, 2*4096*4096."""
    if text is None:
        return None
    total = 1.0
    for part in text.replace("_", "").replace(",", "").split("*"):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*([kmgtp]?|[kmg]ib)\s*", part.lower())
        if not found:
            raise UsageError(f"{option} {text!r}: expected a number such as 137e9, 137G or 2*4096*4096*4096")
        total *= float(found[1]) * _SUFFIXES[found[2]]
    if not math.isfinite(total):
        raise UsageError(f"{option} {text!r}: the number is too large")
    return total


def read_ceilings(path: str) -> tuple[str, dict[str, float]]:
    """Read the device name and its rates from a file that `roofline --measure --json` wrote."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        rates = {str(name): float(value) for name, value in document["measured"].items()}
        if wrong := [name for name, value in rates.items() if not 0 < value < math.inf]:
            raise ValueError(f"{wrong[0]} is {rates[wrong[0]]:g}")
        return str(document["device"]), rates
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "create it with `warplens roofline --measure --json > FILE`"
        raise WarplensError(f"{path}: not a file of measured ceilings ({error}); {remedy}") from None
