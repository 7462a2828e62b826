"""The page of docs/results from what was measured."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.long_kernels import BAR_NS, BAR_WITHIN
from warplens.wording import duration

UNITS = {"fma": "dependent fmas", "shared": "shared-memory loads, each at the address that the last one gave",
         "l2": "L2 loads, each at the address that the last one gave", "sleep": "ns of `nanosleep`",
         "mma": "dependent `mma.m16n8k16`", "bulk": "bytes by `cp.async.bulk` (TMA)"}  # fmt: skip

_COLUMNS = (
    "instances",
    "expected",
    "raw error",
    "error",
    "median |error|",
    "p99 |error|",
    "worst |error|",
    "reads differ",
    "bar",
)

_HEAD = """# Accuracy of durations and placements

Measured by `{command}` on {date}: {device}, driver {driver}, NVRTC {nvrtc}, Python {python}. This page is made by
`python -m benchmarks.accuracy --page FOLDER --to docs/results/accuracy.md`.

| bar | measured | |
|---|---|---|
"""

_LENGTHS = """
## Known lengths in every language

The same PTX stands in a region of each language: a clock read, the work, a clock read. So each instance knows its own
length, also where other warps disturb it. *Expected* is the median of these lengths plus what the two reads take
themselves, which the same code without marks says in the same launch. *Error* is the duration corrected for the cost of
marks (`Trace.time_shift`) less that, of each instance: its median, the median and p99 of its size, and the worst of all
instances. The bar is on the median of its size, so errors of both signs do not cancel; how many would be within it by
the median of the error itself is said beside it. *Reads* is the median size by which what the two reads take differs
from its own median: no two clock reads around the same work agree better than that. *Raw* is the median error without
the correction. *Alone* is one warp on the GPU, *all SMs busy* 16 blocks of one warp per SM, all of which measure.
"""

_LONG = """
## Long kernels and changing clocks

One warp on each SM records the global timer, which moves in steps of 32 ns, after each step of 1 to 50 ms, and an
anchor (`WL_ANCHOR()`), as a kernel whose warps live for many milliseconds should. The error of a moment is the
difference between its place in the trace and its own timer, less the median difference. The kernel is busy and idle in
turn. In *clock changes*, matrix products on another stream also start and stop while it runs. *No anchors* has none
but at its start and end: nothing tells how fast the clock ran in between, and the trace states how far it may be off.
The region around all steps knows its length from the 64-bit clock.
"""


def page(result: dict[str, Any]) -> str:
    sections = [_HEAD.format(**result["context"]).rstrip("\n"), *_bars(result)]
    if "languages" in result:
        sections += [_LENGTHS, *_languages(result["languages"])]
    if "long" in result:
        sections += [_LONG, *_long(result["long"])]
    if "placement" in result:
        sections += _placement(result["placement"]["timer"])
    if "chains" in result:
        sections += _chains(result["chains"])
    if result.get("notes"):
        sections += ["", "## Notes", "", *(f"- {note}" for note in result["notes"])]
    if result["failed"]:
        sections += ["", "## Failed", "", *(f"- {name}: {problem}" for name, problem in result["failed"].items())]
    return "\n".join(sections) + "\n"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def _bars(result: dict[str, Any]) -> list[str]:
    lines = []
    for language, found in result.get("languages", {}).items():
        rows = [row for row in found.get("rows", ()) if "met" in row]
        failed = len(found.get("rows", ())) - len(rows)
        good = sum(row["met"] for row in rows)
        raw = sum(abs(row["raw error"]) <= row["bar"] for row in rows)
        measured = found.get("failed") or (
            f"{good} of {len(rows)}{f', {failed} not measured' if failed else ''}; worst median "
            f"{max((row['median |error|'] for row in rows), default=0):g} cycles; by the median of the signed error "
            f"{sum(abs(row['error']) <= row['bar'] for row in rows)}, the same without the correction {raw}"
        )
        verdict = _verdict(bool(rows) and good == len(rows) and not failed)
        lines.append(f"| {language}: median error at most 1 cycle or 0.5 %, all lengths | {measured} | {verdict} |")
    if "placement" in result:
        one = result["placement"]["timer"]["moments"]
        lines.append(_placement_bar("placement across SMs", one["p99_ns"], one["within the stated p99"]))
    for name, one in result.get("long", {}).items():
        if "failed" in one:
            lines.append(f"| {name} | {one['failed']} | MISSED |")
        elif "no anchors" in name:
            met = one["within the stated p99"] >= BAR_WITHIN
            said = f"p99 {duration(one['p99_ns'])}, stated {duration(one['stated_p99_ns'])}"
            lines.append(f"| placement, {name}: 99 of 100 within the stated bound | {said} | {_verdict(met)} |")
        else:
            lines.append(_placement_bar(f"placement, {name}", one["p99_ns"], one["within the stated p99"]))
    return lines


def _placement_bar(name: str, p99: float, within: float) -> str:
    met = p99 <= BAR_NS and within >= BAR_WITHIN
    said = f"p99 {p99:g} ns; {within:.1%} within the stated p99"
    return f"| {name}: p99 at most 32 ns, 99 of 100 within the stated bound | {said} | {_verdict(met)} |"


def _languages(found: dict[str, Any]) -> list[str]:
    lines = [
        "| language | work | load | instances | expected | raw | error | median size | p99 | worst | reads | bar | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for language, one in found.items():
        if "failed" in one:
            lines.append(f"| {language} | not measured: {one['failed']} | | | | | | | | | | | |")
        for row in one.get("rows", ()):
            work = f"{row['amount']} {UNITS[row['work']]}"
            if "failed" in row:
                lines.append(
                    f"| {language} | {work} | {row['load']} | failed: {row['failed'][:80]} | | | | | | | | | |"
                )
                continue
            cells = " | ".join(f"{row[key]:g}" if key in row else "" for key in _COLUMNS)
            lines.append(f"| {language} | {work} | {row['load']} | {cells} | {_verdict(row['met'])} |")
    return lines


def _long(found: dict[str, Any]) -> list[str]:
    lines = [
        "| kernel | moments | p50, ns | p99 | worst | stated p99 | within it | cycles per step | length | its error |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for name, one in found.items():
        if "failed" in one:
            lines.append(f"| {name} | failed: {one['failed'][:80]} | | | | | | | | |")
            continue
        least, most = one["cycles of a step, least and most"]
        wrong = one["worst error of the whole, cycles"]
        lines.append(
            f"| {name} | {one['moments']:,} | {one['p50_ns']:g} | {one['p99_ns']:g} | {one['worst_ns']:g} | "
            f"{one['stated_p99_ns']:g} | {one['within the stated p99']:.2%} | {least:,} to {most:,} | "
            f"{one['wraps']:g} x 2^32 cycles | {'no such span' if wrong is None else f'{wrong:g} cycles'} |"
        )
        if "clock" in one:
            rates = " to ".join(map(str, one["MHz, least and most"]))
            notes.append(f"- {name}: {one['clock']}; {rates} MHz within a step")
    return [*lines, "", *notes]


def _placement(one: dict[str, Any]) -> list[str]:
    moments = one["moments"]
    return [
        "",
        "## Placement across SMs",
        "",
        "All SMs leave a barrier at an agreed reading of the global timer (`benchmarks/placement.py`) and record it.",
        "The error of a moment is its distance from the median of its round.",
        "",
        "| launches | moments | p50, ns | p99, ns | worst, ns | within the stated p99 | within the stated max |",
        "|---|---|---|---|---|---|---|",
        f"| {one['launches']} | {moments['count']:,} | {moments['p50_ns']:g} | {moments['p99_ns']:g} | "
        f"{moments['max_ns']:g} | {moments['within the stated p99']:.2%} | {moments['within the stated max']:.2%} |",
    ]


def _chains(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## Chains in one warp",
        "",
        "The expected length is what two plain clock reads around the same chain say.",
        "",
        "| marks | work | amounts | slope | error after correction, cycles |",
        "|---|---|---|---|---|",
    ]
    for form, one in found.items():
        for work, row in one["lengths"].items():
            amounts = ", ".join(str(each["amount"]) for each in row["rows"])
            errors = ", ".join(f"{each['error']:g}" for each in row["rows"])
            lines.append(f"| {form} | {UNITS[work]} | {amounts} | {row['slope']:g} | {errors} |")
    return lines
