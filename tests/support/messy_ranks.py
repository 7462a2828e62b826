"""A dataset of a few ranks with everything that statistics know: variants, open spans, values, instants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.builders import Span, make_trace
from warplens.analyse.quantile_sketch import ERROR
from warplens.analyse.statistics import Statistics
from warplens.record.capture import VARIANT
from warplens.trace.io import save_rank
from warplens.trace.model import Trace

RANKS = 3


def messy_rank(rank: int, *, slower: float = 1.0, launches: int = 6) -> Trace:
    """One rank; `slower` stretches the spans of `load`."""
    rng = np.random.default_rng(rank)
    rows: list[Span] = []
    for launch in range(launches):
        for block in range(4):
            for warp in range(2):
                rows += _track(rng, rank, launch, block, warp, slower)
    made = make_trace(rows)
    infos = tuple(
        replace(info, extra={VARIANT: {"BLOCK": 64 << info.launch % 2}} if info.kernel == "attention" else {})
        for info in made.meta.launches
    )
    return Trace(made.spans, replace(made.meta, launches=infos, origin_ns=5_000 + 70 * rank))


def _track(rng: np.random.Generator, rank: int, launch: int, block: int, warp: int, slower: float) -> list[Span]:
    kernel = "gemm" if launch % 3 == 2 else "attention"
    place: dict[str, Any] = {"rank": rank, "launch": launch, "block": block, "warp": warp, "kernel": kernel}
    rows, at = [], launch * 1_000_000
    for turn in range(12):
        load = int(rng.integers(20, 3_000) * slower)
        rows.append(Span("outer", at, load + 400, **place))
        rows.append(Span("load", at + 3, load, **place))
        rows.append(Span("mma", at + load + 10, int(rng.integers(5, 300)), **place))
        if kernel == "gemm":
            rows.append(Span("tile", at + load + 320, kind="instant", **place))
            value = float("nan") if turn == 5 else float(rng.normal(1e6, 3.0))
            rows.append(Span("loss", at + load + 330, kind="value", value=value, **place))
        at += load + 450
    rows.append(Span("never", at, 50, open=True, **place))
    return rows


def write_messy(folder: Path, **given: Any) -> Path:
    """A part for each rank."""
    for rank in range(RANKS):
        save_rank(messy_rank(rank, **given), folder, rank)
    return folder


def assert_same_statistics(found: Statistics, exact: Statistics) -> None:
    """Everything is equal but for rounding, and percentiles are within the stated error."""
    assert found.quantile_error == ERROR
    assert (found.by, found.busy_cycles, found.busy_ns) == (exact.by, exact.busy_cycles, exact.busy_ns)
    assert (found.variants, found.sample) == (exact.variants, exact.sample)
    rows = [{(row.group, row.variant, row.region): row.to_json() for row in one} for one in (found, exact)]
    values = [{(one.kernel, one.name, one.kind): vars(one) for one in some.values} for some in (found, exact)]
    for ours, theirs in (rows, values):
        assert ours.keys() == theirs.keys()
        for key, row in theirs.items():
            for metric, value in row.items():
                within = ERROR if metric[:3] in ("p50", "p95", "p99") else 1e-9
                near = ours[key][metric] == value or abs(ours[key][metric] - value) <= within * abs(value) + 1e-6
                assert near, (key, metric, ours[key][metric], value)
