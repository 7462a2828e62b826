"""Options of verbs that can answer from partial results of a dataset's files, without reading the whole into memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from warplens.analyse.quantile_sketch import ERROR
from warplens.commands.shared.console import stderr
from warplens.engines.named_engines import ALIASES, LOCAL, engine_named
from warplens.trace.dataset import Dataset
from warplens.wording import percent

if TYPE_CHECKING:
    from warplens.engines.part_work import PartEngine

WHOLE_ROWS = 50_000_000
"""Spans of a folder that are still read into memory: about 4 GB."""

_BYTES_PER_SPAN = 200
"""Memory of a trace that is read and analysed whole; docs/results/large_traces.md has measurements."""

engine_option = click.option(
    "--engine",
    metavar="local|spark[:MASTER]",
    help="Answer in bounded memory, file by file: in this process, or on Apache Spark; see docs/scale.md.  [default: "
    f"read the whole trace; local for a folder of more than {WHOLE_ROWS // 1_000_000} million spans]",
)
SKETCHED = f"percentiles are within {percent(ERROR)} of the exact ones (they come from a sketch; see docs/scale.md)"


def caution_if_large(path: str) -> None:
    """Say how much memory a folder takes before it is read whole."""
    if Path(path).is_dir() and (rows := Dataset.open(path).rows) > WHOLE_ROWS:
        needed = f"{path} has {rows:,} spans, which take about {rows * _BYTES_PER_SPAN / 1e9:,.0f} GB of memory"
        stderr().print(f"{needed}; --ranks sample:8 reads fewer", markup=False, soft_wrap=True)


def engine_for(paths: list[str], name: str | None) -> tuple[PartEngine | None, list[Dataset]]:
    """The engine to use and the datasets; no engine where the traces are to be read whole."""
    if name is not None:
        engine = engine_named(name)
        if name in ALIASES:
            stderr().print(f"--engine {name}: warplens reads with pyarrow, which is faster; this is --engine {LOCAL}")
        return _for_spans(engine, [Dataset.open(path) for path in paths])
    if not all(Path(path).is_dir() for path in paths):
        return None, []
    opened = [Dataset.open(path) for path in paths]
    return _for_spans(engine_named(LOCAL), opened) if sum(one.rows for one in opened) > WHOLE_ROWS else (None, [])


def _for_spans(engine: PartEngine, opened: list[Dataset]) -> tuple[PartEngine | None, list[Dataset]]:
    """Traces of mode="aggregate" are small, and their spans are partial results already: they are read whole."""
    return (None, []) if any(one.meta.aggregated for one in opened) else (engine, opened)
