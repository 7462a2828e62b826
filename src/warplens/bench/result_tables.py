"""Results as text: the columns of every table, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from warplens.bench.results import ResultRow, Results, Sweep
from warplens.wording import percent

Column = tuple[str, Callable[[ResultRow], str]]

_ROOF_TOLERANCE = 1.02
_STATUS_TEXT = {"oom": "out of memory"}


def columns(sweep: Sweep, rows: Sequence[ResultRow]) -> list[Column]:
    """Return the columns that have data, with remarks last."""
    base = sweep.baseline
    shown: list[tuple[bool, str, Callable[[ResultRow], str]]] = [
        (True, sweep.x, lambda row: str(row.x)),
        (bool(sweep.line), sweep.line, lambda row: row.line),
        (True, "median µs", lambda row: _number(row.median_ns, 1e-3)),
        (True, "p5", lambda row: _number(row.p5_ns, 1e-3)),
        (True, "p95", lambda row: _number(row.p95_ns, 1e-3)),
        (True, "±", lambda row: _percent(row.deviation, 2)),
        (any(row.speedup for row in rows), f"vs {base}", lambda row: f"{row.speedup:.2f}×" if row.speedup else "-"),
        (any(row.tflops for row in rows), "TFLOP/s", lambda row: _number(row.tflops)),
        (any(row.gbps for row in rows), "GB/s", lambda row: _number(row.gbps)),
        (any(row.of_roof for row in rows), "of roof", lambda row: _percent(row.of_roof)),
        (any(row.bound for row in rows), "bound", lambda row: row.bound or "-"),
        (any(row.peak_bytes is not None for row in rows), "peak MiB", lambda row: _number(row.peak_bytes, 2.0**-20)),
        (
            any(row.error is not None for row in rows),
            "error",
            lambda row: "-" if row.error is None else f"{row.error:.1e}",
        ),
        (any(remarks(row) for row in rows), "remarks", remarks),
    ]
    return [(name, render) for wanted, name, render in shown if wanted]


def remarks(row: ResultRow) -> str:
    """Return warnings about a row."""
    said = []
    if row.status != "ok":
        word = _STATUS_TEXT.get(row.status, row.status)
        said.append(word if not row.note or row.note == word else f"{word}: {row.note}")
    elif row.note:
        said.append(row.note)
    if row.unmet:
        said.append(f"not converged: {row.unmet}")
    if row.of_roof and row.of_roof > _ROOF_TOLERANCE:
        said.append(
            "above the roof: check the declared flops, bytes and dtype (data in L2 is not read from memory again)"
        )
    if row.throttled:
        said.append(f"throttled: {row.throttled}")
    return " ".join("; ".join(said).split())


def heading(sweep: Sweep, others: Sequence[tuple[str, Any]]) -> str:
    """Return the title of a table or plot: the benchmark and its fixed parameters."""
    fixed = ", ".join(f"{name} {value}" for name, value in others)
    return f"{sweep.title or sweep.name}" + (f" ({fixed})" if fixed else "")


def method_line(sweep: Sweep) -> str:
    """Describe the measurement method in one line."""
    timers = {"events": "CUDA events", "graph": "CUDA graph replay", "clock": "host clock"}
    caches = {"flush": "L2 flushed before each call", "rotate": "rotating inputs", "warm": "warm caches"}
    method = sweep.method
    timer, cache = str(method.get("timer")), str(method.get("cache"))
    stop = f"until the median is known to ±{100 * float(method.get('rel_dev', 0)):.2g} %"
    return f"{timers.get(timer, timer)}, {caches.get(cache, cache)}, {stop}"


def machine_line(results: Results) -> str:
    known = results.machine
    versions = known.get("versions", {})
    parts = [str(known.get("device", "?"))]
    if known.get("driver"):
        parts.append(f"driver {known['driver']}")
    parts += [f"{name} {versions[name]}" for name in ("torch", "triton", "warplens") if name in versions]
    parts.append(str(known.get("date", ""))[:10])
    return ", ".join(part for part in parts if part)


def csv_text(results: Results) -> str:
    """Return the rows as CSV: the parameters, then every scalar field."""
    names = list(dict.fromkeys(name for row in results.rows for name in row.params))
    skipped = {"params", "series_ns", "clock_mhz", "x", "line"}
    plain = [one.name for one in fields(ResultRow) if one.name not in skipped]
    # A parameter may have the name of a field, such as dtype.
    headers = [f"param_{name}" if name in plain else name for name in names]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["benchmark", *headers, *plain[1:], "clock_before_mhz", "clock_after_mhz"])
    for row in results.rows:
        clock = row.clock_mhz or ("", "")
        values = [getattr(row, name) for name in plain[1:]]
        writer.writerow(
            [row.benchmark, *(row.params.get(name, "") for name in names)]
            + ["" if value is None else value for value in values]
            + list(clock)
        )
    return out.getvalue()


def markdown(results: Results) -> str:
    """Return a Markdown table per group, with the machine and the command."""
    parts = []
    for (name, others), rows in results.groups().items():
        sweep = results.sweep(name)
        shown = columns(sweep, rows)
        lines = ["| " + " | ".join(title for title, _ in shown) + " |"]
        texts = ("remarks", sweep.line, "bound")
        lines.append("|" + "|".join("---" if title in texts else "---:" for title, _ in shown) + "|")
        for row in rows:
            lines.append("| " + " | ".join(render(row).replace("|", "\\|") for _, render in shown) + " |")
        parts.append(f"### {heading(sweep, others)}\n\n" + "\n".join(lines) + f"\n\n{method_line(sweep)}.")
    command = results.machine.get("command")
    end = f"{machine_line(results)}." + (f" Command: `{command}`." if command else "")
    return "\n\n".join([*parts, end]) + "\n"


def _number(value: float | None, scale: float = 1.0) -> str:
    if value is None:
        return "-"
    scaled = value * scale
    return f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:,.1f}" if abs(scaled) >= 10 else f"{scaled:.3g}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else percent(value, digits)
