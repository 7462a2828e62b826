"""The roofline options that several verbs share, and the file of measured peaks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from warplens.errors import WarplensError

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


def read_ceilings(path: str) -> tuple[str, dict[str, float]]:
    """Read the device name and its rates from a file that `roofline --measure --json` wrote."""
    remedy = "create it with `warplens roofline --measure --json > FILE`"
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        rates = {str(name): float(value) for name, value in document["measured"].items()}
        if wrong := [name for name, value in rates.items() if not 0 < value < math.inf]:
            raise ValueError(f"{wrong[0]} is {rates[wrong[0]]:g}")
        return str(document["device"]), rates
    except OSError as error:
        raise WarplensError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WarplensError(f"{path}: not a file of measured ceilings ({error}); {remedy}") from None
