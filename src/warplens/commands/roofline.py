"""`warplens roofline`: how far a kernel or region is from what the device can do."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape

from warplens.analyse.devices import DTYPES, PEAKS, Peak
from warplens.analyse.roofline import Roofline, roofline
from warplens.commands.common import json_option, print_hanging, print_json, read_trace, stderr, stdout, table
from warplens.errors import UsageError, WarplensError
from warplens.wording import digits, duration, percent

_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@click.command("roofline")
@click.argument("trace", required=False)
@click.option("--flops", default=None, metavar="N", help="FLOPs per launch: 137e9, 137G or 2*4096*4096*4096.")
@click.option("--bytes", "moved", default=None, metavar="N", help="Bytes to and from memory per launch.")
@click.option("--kernel", default=None, help="The kernel, when the trace has several.")
@click.option("--region", default=None, help="Place this region instead of the kernel.")
@click.option("--per-span", is_flag=True, help="FLOPs and bytes are per instance of the region.")
@click.option("--dtype", default="fp16", show_default=True, metavar="|".join(DTYPES), help="Which compute roof.")
@click.option("--device", default=None, help="Use this device's listed peaks, for example H100.")
@click.option("--time-ns", default=None, type=float, help="The time, when there is no trace.")
@click.option("--measure", is_flag=True, help="Measure bandwidth and matrix rates on the GPU at hand.")
@click.option("--ceilings", default=None, metavar="FILE", help="Use what --measure --json wrote.")
@click.option("--list", "listed", is_flag=True, help="List the known devices with their sources.")
@json_option
def command(
    trace: str | None,
    flops: str | None,
    moved: str | None,
    kernel: str | None,
    region: str | None,
    per_span: bool,
    dtype: str,
    device: str | None,
    time_ns: float | None,
    measure: bool,
    ceilings: str | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Place a kernel of TRACE, or one of its regions, under the roof of its device."""
    if listed:
        _print_devices(as_json)
        return
    measured: dict[str, float] | None = None
    if measure:
        from warplens.bench.device_peaks import measure_ceilings

        stderr().print("measuring copy bandwidth and matrix rates ...")
        name, measured = measure_ceilings()
        device = device or name
    elif ceilings:
        name, measured = read_ceilings(ceilings)
        device = device or name
    if measured and not (flops or moved):
        _print_ceilings(device or "", measured, as_json)
        return
    if trace is None and time_ns is None:
        raise UsageError("name a trace, or give --time-ns and --device; --measure and --list work alone")
    result = roofline(
        read_trace(trace) if trace else None,
        flops=amount(flops, "--flops"),
        bytes=amount(moved, "--bytes"),
        kernel=kernel,
        region=region,
        per_span=per_span,
        dtype=dtype,
        device=device,
        time_ns=time_ns,
        measured=measured,
    )
    if as_json:
        print_json(result.to_json())
    else:
        _print(result)


def amount(text: str | None, option: str) -> float | None:
    """A number, with a suffix, or a product of such."""
    if text is None:
        return None
    total = 1.0
    for part in text.replace("_", "").replace(",", "").split("*"):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*([kmgtp]?|[kmg]ib)\s*", part.lower())
        if not found:
            raise UsageError(f"{option} {text!r}: expected a number such as 137e9, 137G or 2*4096*4096*4096")
        total *= float(found[1]) * _SUFFIXES[found[2]]
    if not math.isfinite(total):
        raise UsageError(f"{option} {text!r}: too large")
    return total


def read_ceilings(path: str) -> tuple[str, dict[str, float]]:
    """The device and its rates, as `--measure --json` printed them."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        rates = {str(name): float(value) for name, value in document["measured"].items()}
        if wrong := [name for name, value in rates.items() if not 0 < value < math.inf]:
            raise ValueError(f"{wrong[0]} is {rates[wrong[0]]:g}")
        return str(document["device"]), rates
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "make it with `warplens roofline --measure --json > FILE`"
        raise WarplensError(f"{path}: not measured ceilings ({error}); {remedy}") from None


def _print(one: Roofline) -> None:
    console = stdout()
    roof = one.ceilings
    origin = "measured" if roof.measured else f"listed: {roof.source}"
    bound = "neither memory nor compute" if one.bound == "neither" else one.bound
    console.print(f"[bold]{escape(one.what)}[/] in {duration(one.time_ns)}: [bold]{bound}[/] bound")
    if one.tflops is not None:
        share = percent(one.tflops / roof.tflops)
        console.print(f"  {digits(one.tflops)} of {digits(roof.tflops)} TFLOP/s {roof.dtype} ({share})")
    if one.bandwidth is not None:
        share = percent(one.bandwidth / roof.bandwidth)
        console.print(f"  {digits(one.bandwidth)} of {digits(roof.bandwidth)} GB/s ({share})")
    if one.intensity is not None:
        console.print(f"  {digits(one.intensity)} FLOP/byte; the ridge is at {digits(roof.ridge)}")
    room = f": it could be {one.times:.2f} times as fast" if one.of_roof <= 1 else ""
    console.print(f"  {percent(one.of_roof)} of the roof{room}")
    console.print(f"  {escape(roof.device)} ({escape(origin)})")
    print_hanging(console, "", f"[cyan]{escape(one.advice)}[/]")


def _print_ceilings(device: str, measured: dict[str, float], as_json: bool) -> None:
    if as_json:
        print_json({"device": device, "measured": measured})
        return
    units = {"bandwidth": "GB/s"}
    for name, value in measured.items():
        stdout().print(f"{name:<10} {digits(value)} {units.get(name, 'TFLOP/s')}")


def _print_devices(as_json: bool) -> None:
    if as_json:
        print_json({"devices": [asdict(peak) for peak in PEAKS]})
        return
    columns = [
        ("device", lambda peak: peak.name),
        ("SMs", lambda peak: str(peak.sms)),
        ("GB/s", lambda peak: digits(peak.bandwidth)),
        *((dtype, _rate(dtype)) for dtype in ("fp64", "fp32", "tf32", "fp16", "fp8")),
        ("source", lambda peak: escape(peak.source)),
    ]
    stdout().print(table("listed peaks, dense, TFLOP/s", columns, PEAKS))


def _rate(dtype: str) -> Callable[[Peak], str]:
    return lambda peak: digits(peak.tflops[dtype]) if dtype in peak.tflops else "-"
