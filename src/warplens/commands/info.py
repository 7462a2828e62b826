"""`warplens info`: describe a trace or capture and how accurate it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import click
from rich.markup import escape

from warplens.analyse.kernel_variants import KernelVariant, kernel_variants
from warplens.analyse.mark_cost import variant_costs
from warplens.analyse.region_counters import AttributedPages, region_counters
from warplens.analyse.region_purity import region_purity, verified_kernels
from warplens.analyse.sample_share import blocks_text, sample_line, sample_share
from warplens.analyse.sampled_stalls import sampled_stalls, sampling_line
from warplens.analyse.slowdown import slowdown_of
from warplens.analyse.trace_quality import clock_line, rank_line, time_line, warnings_of
from warplens.commands.shared.console import json_option, merge_variants_option, print_json, read_trace, stdout, table
from warplens.commands.shared.counter_tables import ncu_table, print_counters
from warplens.commands.shared.dataset_options import engine_for
from warplens.errors import UsageError
from warplens.record.c_header import INCLUDE
from warplens.record.capture import BLOCK_LIVES
from warplens.runner.nsight_compute import find_source_pages, read_ncu
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankClocks
from warplens.wording import duration, percent, plural

_MAX_LAUNCHES = 12
_MAX_PAIRED_RANKS = 64
"""With more ranks, the bound of a pair is to be computed from those of its ranks and hosts."""


@click.command("info")
@click.argument("trace", required=False)
@click.option("--include-dir", "show_include", is_flag=True, help="Print the include folder of warplens.cuh and exit.")
@click.option(
    "--ncu",
    metavar="REPORT",
    help="Also describe an Nsight Compute report (.csv or .ncu-rep); with TRACE, also by region.",
)
@click.option(
    "--torch", metavar="FILE", help="Also describe a trace exported by torch.profiler: operators, kernels, memory."
)
@merge_variants_option
@json_option
def command(
    trace: str | None, show_include: bool, ncu: str | None, torch: str | None, merge_variants: bool, as_json: bool
) -> None:
    """Describe TRACE: device, launches, regions, clock alignment error, lost records and profiling overhead."""
    if show_include:
        print_json({"include_dir": str(INCLUDE)}) if as_json else click.echo(INCLUDE)
        return
    if trace is None and torch is None and ncu is None:
        raise UsageError("nothing to describe; give a trace, --torch, --ncu or --include-dir")
    is_csv = ncu is not None and ncu.endswith(".csv")
    pages = find_source_pages(ncu) if ncu and (trace or is_csv) else None
    only_pages = is_csv and pages is not None
    if only_pages and trace is None:
        raise UsageError(f"{ncu}: a source page is attributed to the regions of a trace; name the trace too")
    described = (("torch", _torch, torch), ("ncu", _ncu, None if only_pages else ncu))
    reports = [(one, of(path, as_json)) for one, of, path in described if path]
    if trace is None:
        if as_json:
            print_json(reports[0][1] if len(reports) == 1 else dict(reports))
        return
    runner, datasets = engine_for([trace], None) if ncu is None else (None, [])
    loaded = read_trace(trace) if runner is None else datasets[0].outline()
    counted = [] if pages is None else [region_counters(loaded, pages)]
    counters = AttributedPages.joined([sampled_stalls(loaded), *counted])
    if as_json:
        more = {"counters": counters.to_json()} if counters.regions or counters.notes else {}
        print_json(_document(trace, loaded, merge_variants) | dict(reports) | more)
        return
    console = stdout()
    for label, text in _facts(trace, loaded):
        console.print(f"[bold]{label:<9}[/] {escape(text)}")
    found = kernel_variants(loaded.meta.launches, merge=merge_variants)
    if any(not one.is_only_one or one.ran > len(one.launches) or slowdown_of(one.launches) for one in found):
        console.print(_variant_table(found))
    console.print(_launch_table(loaded))
    print_counters(console, counters)
    for line in warnings_of(loaded) or ["no records were lost"]:
        console.print(escape(line))


def _ncu(path: str, as_json: bool) -> dict[str, object]:
    """Print an Nsight Compute report, unless as JSON, and return it as a document."""
    kernels = read_ncu(path)
    if not as_json:
        stdout().print(ncu_table(kernels))
    listed = [asdict(one) | {"bound": one.bound, "stalls": one.groups} for one in kernels]
    return {"file": path, "kernels": listed}


def _torch(path: str, as_json: bool) -> dict[str, object]:
    """Print what PyTorch's profiler measured, unless as JSON, and return it as a document."""
    from warplens.analyse.torch.kineto import read_torch
    from warplens.analyse.torch.operators import summarise
    from warplens.commands.shared.torch_tables import torch_tables

    summary = summarise(read_torch(path))
    if not as_json:
        for made in torch_tables(summary):
            stdout().print(made)
    return {"file": path} | summary.to_json()


def _document(path: str, trace: Trace, merge_variants: bool) -> dict[str, object]:
    meta = trace.meta.to_json()
    clocks = RankClocks.of(trace.meta)
    # Every reading of a clock and every call is for programs that place the ranks.
    meta["rank_notes"] = {}
    meta["rank_clocks"] = replace(clocks, calls=()).to_json() | {
        "calls": len(clocks.calls),
        "bounds_ns": clocks.bounds().tolist() if len(clocks.ranks) <= _MAX_PAIRED_RANKS else [],
    }
    # The samples of every instruction are for programs, too; `counters` has those of each region.
    meta["pc_samples"] = {name: value for name, value in meta["pc_samples"].items() if name != "codes"}
    for launch in meta["launches"]:
        launch["extra"].pop(BLOCK_LIVES, None)
    found = kernel_variants(trace.meta.launches, merge=merge_variants)
    return {
        "file": path,
        "checksums": trace.checked,
        "spans": len(trace),
        "sample": sample_share(trace.meta.launches),
        "variants": [
            one.to_json()
            | {
                "label": one.label,
                "slowdown": slowdown.to_json() if (slowdown := slowdown_of(one.launches)) else None,
                "sample": sample_share(one.launches),
            }
            for one in found
        ],
        "kernels": trace.kernels,
        "regions": trace.regions,
        "meta": meta,
        "costs": [one.to_json() for one in variant_costs(trace)],
        "purity": [one.to_json() for one in region_purity(trace).values()],
        "time": time_line(trace),
        "warnings": warnings_of(trace),
    }


def _facts(path: str, trace: Trace) -> list[tuple[str, str]]:
    devices = [_device(each) for each in trace.meta.distinct_devices]
    ranks = {info.rank for info in trace.meta.launches}
    cost = ", ".join(f"{name} {value:,.4g}" for name, value in trace.meta.cost.items())
    shown = trace.regions[:20]
    more = f" and {len(trace.regions) - 20} more" if len(trace.regions) > 20 else ""
    unchecked = "no: the file has no checksums, so damage may go unseen (older warplens)"
    facts = [
        ("file", path),
        ("blocks", sample_line(trace.meta.launches)),
        ("checked", unchecked if trace.checked is False else ""),
        ("device", ", ".join(devices) or "unknown"),
        ("spans", f"{len(trace):,} in {plural(trace.meta.losses.tracks, 'track')}"),
        ("launches", f"{len(trace.meta.launches):,} on {plural(max(len(ranks), 1), 'rank')}"),
        ("regions", ", ".join(shown) + more or "none"),
        ("time", time_line(trace)),
        ("clock", clock_line(trace)),
        ("ranks", rank_line(trace)),
        ("cost", cost),
        ("verified", _verified_line(trace) if trace.meta.verification else ""),
        ("stalls", sampling_line(trace)),
        ("copy-out", _copy_out_line(trace) if _copy_out_times(trace) else ""),
    ]
    return [(name, text) for name, text in facts if text]


def _device(known: Mapping[str, Any]) -> str:
    sms = int(known.get("sm_count", 0))
    return str(known.get("name", "unknown")) + (f" ({plural(sms, 'SM')})" if sms else "")


def _verified_line(trace: Trace) -> str:
    """Sum up the verification: how pure the regions are, which are flagged, and what could not be verified."""
    found = region_purity(trace).values()
    problems = {one.problem for each in verified_kernels(trace).values() for one in each if one.problem}
    parts = []
    if found:
        worst = min(found, key=lambda one: one.purity)
        parts.append(f"{plural(len(found), 'region')} in the machine code; lowest purity {percent(worst.purity)}")
        parts[0] += f" ({worst.region})" if worst.purity < 1 else ""
    parts += [f"{one.region}: {one.flag}" for one in found if one.flag]
    return "; ".join([*parts, *(f"not verified: {one}" for one in sorted(problems))])


def _copy_out_times(trace: Trace) -> list[float]:
    """Return how long copying out each launch's buffer took, in ns; empty for captures without this measurement."""
    return [info.cost["finalize_ns"] for info in trace.meta.launches if "finalize_ns" in info.cost]


def _copy_out_line(trace: Trace) -> str:
    times = _copy_out_times(trace)
    if len(times) == 1:
        return duration(times[0])
    least, middle, most = duration(min(times)), duration(median(times)), duration(max(times))
    return f"{least} min, {middle} median, {most} max over {len(times):,} launches"


def _variant_table(found: Sequence[KernelVariant]) -> object:
    """Build a table with one row per kernel, or per variant of a kernel that has several."""

    def mean(one: KernelVariant) -> float:
        return sum(info.end_ns - info.begin_ns for info in one.launches) / len(one.launches)

    columns: list[tuple[str, Callable[[KernelVariant], str]]] = [
        ("variant", lambda one: escape(one.label)),
        (
            "launches",
            lambda one: f"{len(one.launches):,}" + (f" of {one.ran:,}" if one.ran > len(one.launches) else ""),
        ),
        ("mean", lambda one: duration(mean(one))),
        ("slowdown", lambda one: str(slowdown_of(one.launches) or "-")),
    ]
    if any(sample_share(one.launches) for one in found):
        columns.insert(
            2, ("blocks", lambda one: blocks_text(share) if (share := sample_share(one.launches)) else "all")
        )
    return table("kernels", columns, found)


def _launch_table(trace: Trace) -> object:
    infos = trace.meta.launches
    title = f"the first {_MAX_LAUNCHES} of {len(infos):,} launches" if len(infos) > _MAX_LAUNCHES else "launches"
    columns = [
        ("kernel", lambda info: escape(info.kernel)),
        ("launch", lambda info: str(info.launch)),
        ("rank", lambda info: str(info.rank)),
        ("grid", lambda info: "×".join(map(str, info.grid))),
        ("block", lambda info: "×".join(map(str, info.block))),
        ("tracks", lambda info: f"{info.tracks:,}"),
        ("start", lambda info: duration(info.begin_ns)),
        ("duration", lambda info: duration(info.end_ns - info.begin_ns)),
        ("clock", lambda info: info.clock),
    ]
    if _copy_out_times(trace):
        columns.insert(
            -1, ("copy-out", lambda info: duration(t) if (t := info.cost.get("finalize_ns")) is not None else "-")
        )
    return table(title, columns, infos[:_MAX_LAUNCHES], spare=("clock", "rank"))
