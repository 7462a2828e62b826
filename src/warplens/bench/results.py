"""The results of a benchmark run: one row per case, the sweeps and the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warplens.analyse.roofline import Ceilings
from warplens.errors import UsageError, check_name

STATUSES = ("ok", "wrong", "oom", "failed", "skipped")
BROKEN = ("wrong", "failed")
"""Statuses that make `warplens bench` exit with code 1; out of memory and skipped do not."""


@dataclass(frozen=True)
class ResultRow:
    """The result of one case. Times, rates and memory are None if they were not measured or not declared.

    - `status`: ok, wrong (timed, but the result is not right), oom, failed or skipped; `note` says why.
    - `unmet`: the stopping condition that was not met before the timeout; empty if all were met.
    - `throttled`: evidence that the device was throttled during the measurement; empty if there is none.
    - `deviation`: half-width of the 95 % interval of the median, as a share of the median.
    - `of_roof`: share of the roof at this intensity; `bound`: memory, compute or neither (below 60 % of the roof).
    - `peak_bytes`: device memory of inputs, result and workspace; `extra_bytes`: what the call itself added.
    - `error`: the largest relative error against the reference, `tolerance` what was allowed.
    - `clock_mhz`: the SM clock before and after; `speedup`: the baseline's median over this one.
    - `series_ns`: the samples in order (at most a thousand of them, evenly chosen).
    """

    benchmark: str
    params: Mapping[str, Any]
    x: Any
    line: str
    status: str = "ok"
    note: str = ""
    unmet: str = ""
    throttled: str = ""
    samples: int = 0
    median_ns: float | None = None
    p5_ns: float | None = None
    p25_ns: float | None = None
    p75_ns: float | None = None
    p95_ns: float | None = None
    mean_ns: float | None = None
    min_ns: float | None = None
    max_ns: float | None = None
    std_ns: float | None = None
    deviation: float | None = None
    dtype: str = ""
    flops: float | None = None
    bytes: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    of_roof: float | None = None
    bound: str = ""
    peak_bytes: int | None = None
    extra_bytes: int | None = None
    error: float | None = None
    tolerance: float | None = None
    clock_mhz: tuple[float, float] | None = None
    speedup: float | None = None
    series_ns: tuple[float, ...] = field(default=(), repr=False)

    @property
    def timed(self) -> bool:
        return self.median_ns is not None


@dataclass(frozen=True)
class Sweep:
    """The parameters of one benchmark: the x axis, the line axis ("" for none), the others, the baseline line, and the
    settings of the measurement."""

    name: str
    x: str
    line: str
    others: tuple[str, ...]
    baseline: str = ""
    title: str = ""
    method: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """The rows of one run, with everything needed to repeat it. `roofs` are the ceilings used for each type; `complete`
    is False for an interrupted run."""

    sweeps: tuple[Sweep, ...]
    rows: tuple[ResultRow, ...]
    machine: Mapping[str, Any]
    roofs: Mapping[str, Ceilings] = field(default_factory=dict)
    complete: bool = True

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def row(self, **params: Any) -> ResultRow:
        """Return the only row with these parameters, for example `results.row(seq_len=1024, impl="flash")`."""
        for name in params:
            known = {known for row in self.rows for known in row.params}
            check_name(f"no parameter {name!r}", name, known)
        found = [row for row in self.rows if all(row.params.get(name) == value for name, value in params.items())]
        if len(found) != 1:
            raise UsageError(f"{len(found)} rows have {params}; give parameters that match exactly one")
        return found[0]

    def groups(self) -> dict[tuple[str, tuple[tuple[str, Any], ...]], list[ResultRow]]:
        """Group the rows of one table or plot: the same benchmark, and equal parameters except x and line."""
        others = {sweep.name: sweep.others for sweep in self.sweeps}
        out: dict[tuple[str, tuple[tuple[str, Any], ...]], list[ResultRow]] = {}
        for row in self.rows:
            key = row.benchmark, tuple((name, row.params.get(name)) for name in others[row.benchmark])
            out.setdefault(key, []).append(row)
        return out

    def sweep(self, name: str) -> Sweep:
        return next(sweep for sweep in self.sweeps if sweep.name == name)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write a file; its suffix selects JSON (which `load_results` reads), CSV or Markdown."""
        from warplens.bench.result_files import save

        return save(self, path, force=force)

    def to_json(self) -> dict[str, Any]:
        from warplens.bench.result_files import document

        return document(self)

    def to_csv(self) -> str:
        from warplens.bench.result_tables import csv_text

        return csv_text(self)

    def to_markdown(self) -> str:
        from warplens.bench.result_tables import markdown

        return markdown(self)

    def plot(self, folder: str | os.PathLike[str], *, format: str = "svg", force: bool = False) -> list[Path]:
        """Write plots of latency, throughput, speed-up, memory and roofline to a folder."""
        from warplens.bench.result_plots import write_plots

        return write_plots(self, folder, format=format, force=force)


def with_speedups(results: Results) -> Results:
    """Set each row's speed-up over the baseline row with the same other parameters."""
    lines = {sweep.name: (sweep.line, sweep.baseline) for sweep in results.sweeps if sweep.baseline}
    known = {
        (row.benchmark, _others(row, lines[row.benchmark][0])): row.median_ns
        for row in results.rows
        if row.benchmark in lines and row.line == lines[row.benchmark][1] and row.status == "ok"
    }
    rows = []
    for row in results.rows:
        base = known.get((row.benchmark, _others(row, lines[row.benchmark][0]))) if row.benchmark in lines else None
        # A wrong result has no speed-up.
        rows.append(
            replace(row, speedup=base / row.median_ns if base and row.median_ns and row.status == "ok" else None)
        )
    return replace(results, rows=tuple(rows))


def _others(row: ResultRow, line: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in row.params.items() if name != line))
