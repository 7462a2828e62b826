"""`warplens roofline`: compare a kernel or region with the compute and memory peaks of its device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import click
from rich.markup import escape

from warplens.analyse.devices import DTYPES, PEAKS, Peak
from warplens.analyse.roofline import Roofline, roofline
from warplens.commands.shared.console import json_option, print_hanging, print_json, read_trace, stderr, stdout, table
from warplens.commands.shared.quantities import amount
from warplens.commands.shared.roofline_options import (
    bytes_option,
    ceilings_option,
    device_option,
    flops_option,
    read_ceilings,
)
from warplens.errors import UsageError
from warplens.wording import digits, duration, percent


@click.command("roofline")
@click.argument("trace", required=False)
@flops_option
@bytes_option
@click.option("--kernel", metavar="NAME", help="Kernel to analyse, if the trace has several.")
@click.option(
    "--region",
    metavar="NAME",
    help="Analyse this region instead of the whole kernel. Its time is how long an SM was in it, on average.",
)
@click.option("--per-span", is_flag=True, help="--flops and --bytes are per span of the region, not per launch.")
@click.option("--dtype", default="fp16", metavar="|".join(DTYPES), help="Compute peak to compare with.")
@device_option
@click.option("--time-ns", type=float, metavar="NS", help="Kernel time in ns, to use without a trace.")
@click.option(
    "--measure",
    is_flag=True,
    help="Measure memory bandwidth and matrix multiplication rates on this GPU and use them as peaks.",
)
@ceilings_option
@click.option("--list", "listed", is_flag=True, help="List the known devices, their peaks and the sources, then exit.")
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
    """Show how close a kernel of TRACE, or one of its regions, comes to the peaks of its device.

    \b
    Examples:
      warplens roofline gemm.warplens --flops 2*4096*4096*4096 --bytes 100663296
      warplens roofline --time-ns 250e3 --device H100 --flops 137e9 --bytes 67e6
      warplens roofline --measure --json > ceilings.json
    """
    if listed:
        _print_devices(as_json)
        return
    measured: dict[str, float] | None = None
    if measure:
        from warplens.bench.device_peaks import measure_ceilings

        stderr().print("measuring memory bandwidth and matrix multiplication rates ...")
        name, measured = measure_ceilings()
        device = device or name
    elif ceilings:
        name, measured = read_ceilings(ceilings)
        device = device or name
    if measured and not (flops or moved):
        _print_ceilings(device or "", measured, as_json)
        return
    if trace is None and time_ns is None:
        raise UsageError(
            "no time to analyse; give a trace, or --time-ns and --device (--measure and --list need neither)"
        )
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
        _print(result, region)


def _print(one: Roofline, region: str | None = None) -> None:
    console = stdout()
    roof = one.ceilings
    origin = "measured" if roof.measured else f"listed: {roof.source}"
    bound = "neither memory nor compute" if one.bound == "neither" else one.bound
    when = f", active {duration(one.time_ns)} on the average SM" if region else f" in {duration(one.time_ns)}"
    console.print(f"[bold]{escape(one.what)}[/]{when}: [bold]{bound}[/] bound")
    if one.tflops is not None:
        share = percent(one.tflops / roof.tflops)
        console.print(f"  {digits(one.tflops)} of {digits(roof.tflops)} TFLOP/s {roof.dtype} ({share})")
    if one.bandwidth is not None:
        share = percent(one.bandwidth / roof.bandwidth)
        console.print(f"  {digits(one.bandwidth)} of {digits(roof.bandwidth)} GB/s ({share})")
    if one.intensity is not None:
        console.print(f"  {digits(one.intensity)} FLOP/byte; the ridge point is at {digits(roof.ridge)}")
    speedup = f"; at the roof it would be {digits(one.times)} times as fast" if one.of_roof <= 1 else ""
    console.print(f"  {percent(one.of_roof)} of the roof{speedup}")
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
    stdout().print(table("listed peaks (dense TFLOP/s)", columns, PEAKS))


def _rate(dtype: str) -> Callable[[Peak], str]:
    return lambda peak: digits(peak.tflops[dtype]) if dtype in peak.tflops else "-"
