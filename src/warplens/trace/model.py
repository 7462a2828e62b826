"""The trace: a table of spans with its metadata."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.sass.verified_regions import KernelVerification
from warplens.text import printable
from warplens.trace.arrays import dictionary_array, numpy_dtype, to_arrow, to_numpy
from warplens.trace.columns import Columns, LazyColumns, ParquetColumns, TableColumns
from warplens.trace.parquet_pieces import Piece
from warplens.trace.pass_progress import passed
from warplens.trace.runs import Runs
from warplens.trace.schema import AGGREGATE_COLUMNS, COLUMNS, KINDS, LaunchInfo, Meta, kind_indices
from warplens.trace.validation import RUN_COLUMNS
from warplens.wording import first_of, plural

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from warplens.analyse.findings import Findings
    from warplens.analyse.known_facts import KnownFacts
    from warplens.analyse.region_counters import AttributedPages
    from warplens.analyse.statistics import Statistics

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Condition = str | int | Iterable[str] | Iterable[int]
BLOCK_ROWS = 1 << 17
"""Rows of the blocks that analyses go through."""
_MARK_COLUMNS = ["rank", "device", "launch", "kernel", "sm", "block", "warp", "region", "start_ns", "start_cycle"]


class Trace:
    """Spans of any number of launches, kernels and ranks. Columns are computed or read on first use."""

    def __init__(self, columns: Columns | pa.Table, meta: Meta | None = None) -> None:
        self._columns: Columns = TableColumns(columns) if isinstance(columns, pa.Table) else columns
        self._cache: dict[str, pa.Array] = {}
        self._runs: dict[str, Runs] = {}
        self._names: dict[str, list[str]] = {}
        self._masks: dict[str, Mask] = {}
        self.derived: dict[type, Any] = {}
        """What analyses computed of this trace and keep for each other; it goes with the trace."""
        self.meta = meta or Meta()
        self.checked: bool | None = None
        """Whether its file has checksums; None for a trace that was not read from a file."""
        self.encoded: Mapping[tuple[int, int], Sequence[Piece]] = {}
        """By first row and end, row groups of its file of which some columns were encoded while the program ran."""
        self.kept_measures = b""
        """What its file keeps for the statistics of all of its rows; see `warplens.analyse.stored_measures`."""
        self.verifier: Callable[[], Mapping[str, Mapping[str, Any]]] | None = None
        """Verifies the regions of a trace that was just recorded, which takes a disassembler."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows themselves: the file may be gone, or be another one, where they are unpickled."""
        return Trace, (self.spans, self.meta)

    @cached_property
    def spans(self) -> pa.Table:
        """All spans with the columns of `warplens.trace.schema.COLUMNS`."""
        self.prefetch(*self.column_names)
        return pa.table({name: self.column(name) for name in self.column_names})

    @property
    def column_names(self) -> list[str]:
        """The names of the columns of `spans`."""
        return [*COLUMNS, *(AGGREGATE_COLUMNS if self.aggregated else ())]

    @property
    def aggregated(self) -> bool:
        """Whether a span stands for many executions of its region (`mode="aggregate"`)."""
        return self.meta.aggregated

    @cached_property
    def edges(self) -> pa.Table:
        """Who waited for whom: one row per wait on a barrier; columns as in `warplens.trace.edges.EDGE_COLUMNS`."""
        from warplens.trace.edges import edges

        return edges(self)

    def column(self, name: str) -> pa.Array:
        """One column, without building the full table."""
        if name not in self._cache:
            self._cache[name] = self._columns.column(name)
        return self._cache[name]

    def prefetch(self, *names: str) -> None:
        """Read several columns of a file at once, which is faster than one by one."""
        missing = [name for name in names if name not in self._cache]
        if isinstance(self._columns, ParquetColumns) and len(missing) > 1:
            self._cache.update(self._columns.read(missing))

    def rows(self, names: Sequence[str], first: int, last: int) -> pa.Table:
        """Some columns of a range of rows, without building whole columns where that can be avoided."""
        parts = self._columns.parts if isinstance(self._columns, LazyColumns) else {}
        return pa.table(
            {
                name: parts[name](first, last)
                if has_parts(self, name)
                else self.column(name).slice(first, last - first)
                for name in names
            }
        )

    def numpy(self, name: str) -> Array:
        """One plain column as a numpy array; `value` has NaN where there is none."""
        array = self.column(name)
        if pa.types.is_dictionary(array.type):
            raise TypeError(f"column {name!r} holds names; use codes({name!r})")
        return self._kept(name, lambda: to_numpy(array)) if pa.types.is_boolean(array.type) else to_numpy(array)

    def at(self, name: str, rows: Array) -> Array:
        """Numbers, or codes of names, at some rows only; cheap for columns that are constant along a track."""
        if name not in self._cache and isinstance(self._columns, LazyColumns) and name in self._columns.of_tracks:
            return self._columns.at(name, rows)
        if name in RUN_COLUMNS and name not in self._cache:
            return self.runs(name).at(rows)
        return np.asarray(self._numbers(name)[rows])

    def runs(self, name: str) -> Runs:
        """Numbers, or codes of names, of a column that is constant along a track, as runs of equal values."""
        if name not in self._runs:
            if isinstance(self._columns, ParquetColumns) and name not in self._cache:
                self._runs[name], self._names[name] = self._columns.runs(name)
            elif isinstance(self._columns, LazyColumns) and name in self._columns.of_tracks and not _is_names(name):
                self._runs[name] = self._columns.runs(name)
            else:
                self._runs[name] = Runs.of(self._numbers(name))
        return self._runs[name]

    def blocks(self, *names: str, keep: Collection[str] = ()) -> Iterator[tuple[int, int, list[Array]]]:
        """Blocks of whole tracks that fit a processor's cache: the first row, the end, and some columns.

        Regions and kernels are codes of `names`, kinds are indices of KINDS. Columns of a file that were not read yet
        are read block by block, and not kept but for those in `keep`.
        """
        tracks, columns, unread = self.runs("track"), self._columns, list[str]()
        groups: Iterable[tuple[int, dict[str, Array]]] = [(0, {})]
        if isinstance(columns, ParquetColumns) and columns.has_blocks:
            unread = [name for name in names if name not in self._cache]
            groups = columns.blocks(unread) if unread else groups
        whole = {name: self._numbers(name) for name in names if name not in unread}
        kept = {name: np.empty(len(self), numpy_dtype(COLUMNS[name])) for name in unread if name in keep}
        for first, read in groups:
            last = first + len(read[unread[0]]) if unread else tracks.rows  # an outline has no rows
            for name, values in kept.items():
                values[first:last] = read[name]
            for begin, end in tracks.blocks(first, last, BLOCK_ROWS):
                here, there = slice(begin, end), slice(begin - first, end - first)
                yield begin, end, [whole[name][here] if name in whole else read[name][there] for name in names]
                passed(end, len(self))
        for name, values in kept.items():
            known = KINDS if name == "kind" else self.names(name) if _is_names(name) else None
            self._cache[name] = to_arrow(values) if known is None else dictionary_array(values, known)

    def _numbers(self, name: str) -> Array:
        """A whole column of numbers, of codes of names, or of indices of KINDS."""
        if name == "kind":
            return kind_indices(*self.codes(name))
        return self.codes(name)[0] if _is_names(name) else self.numpy(name)

    def names(self, name: str) -> list[str]:
        """The names that the codes of a column stand for, in the order of their first use."""
        if not isinstance(self._columns, ParquetColumns) or name in self._cache or not self._columns.has_blocks:
            return self.codes(name)[1]
        if name not in self._names:
            self._names[name] = self._columns.names(name)
        return self._names[name]

    def codes(self, name: str) -> tuple[Array, list[str]]:
        """A column of names as integer codes and the names they index."""
        array = self.column(name)
        return to_numpy(array.indices), array.dictionary.to_pylist()

    def of_kind(self, kind: str) -> npt.NDArray[np.bool_]:
        """A mask of the rows of one kind, span, instant or value, which must not be changed."""
        codes, names = self.codes("kind")
        here = names.index(kind) if kind in names else -1
        return self._kept(kind, lambda: np.asarray(codes == here))

    def _kept(self, name: str, mask: Callable[[], Mask]) -> Mask:
        """A mask that is made once: many analyses ask for it."""
        if name not in self._masks:
            self._masks[name] = mask()
            self._masks[name].flags.writeable = False
        return self._masks[name]

    def __len__(self) -> int:
        return self._columns.rows

    @property
    def regions(self) -> list[str]:
        """The names of all regions, in the order of their first use."""
        return self.names("region")

    @property
    def kernels(self) -> list[str]:
        """The names of all kernels."""
        if isinstance(self._columns, ParquetColumns) and "kernel" not in self._cache:
            self.runs("kernel")
            return self._names["kernel"]
        return self.codes("kernel")[1]

    @property
    def launches(self) -> Sequence[LaunchInfo]:
        """One entry per recorded launch: kernel, grid, block, begin and end, cost."""
        return self.meta.launches

    def values(self, region: str | None = None) -> pa.Table:
        """The rows that `value` marks left, of all regions or of one: where, when and what."""
        return self._marks("value", region)

    def instants(self, region: str | None = None) -> pa.Table:
        """The rows that `instant` marks left, of all regions or of one: where and when."""
        return self._marks("instant", region)

    def _marks(self, kind: str, region: str | None) -> pa.Table:
        from warplens.trace.select import select

        chosen = select(self, kind=kind, region=region) if kind in self.codes("kind")[1] else Trace(empty_table())
        return chosen.spans.select([*_MARK_COLUMNS, "value"] if kind == "value" else _MARK_COLUMNS)

    def select(self, *, time: tuple[float | None, float | None] | None = None, **conditions: Condition | None) -> Trace:
        """Return the spans that meet every condition.

        time        (a, b) in ns: spans that begin before b and end at a or later; None leaves a side open
        conditions  kernel, region or kind: a name or a list of names; rank, device, launch, sm, block, warp, track,
                    lane or depth: a number, a list of numbers or a range
        """
        from warplens.trace.select import select

        return select(self, time=time, **conditions)

    def stats(self, by: str = "region", *, merge_variants: bool = False, corrected: bool = False) -> Statistics:
        """Return the statistics of every region.

        by              `region`, or a further group: `kernel`, `sm`, `warp`, `block`, `launch` or `rank`
        merge_variants  give all variants of a kernel one row per region
        corrected       also give the means without the cost of marks, where that was measured
        """
        from warplens.analyse.statistics import statistics

        return statistics(self, by=by, merge_variants=merge_variants, corrected=corrected)

    def findings(self, *, waits: str | None = None, given: KnownFacts | None = None) -> Findings:
        """What costs time and what to do about it, the largest expected gain first; see `warplens.analyse.findings`.

        `waits` is a regular expression for regions that only wait, in addition to those whose name says so. `given` is
        what is known beyond the trace, such as the kernel's FLOPs and bytes.
        """
        from warplens.analyse.findings import findings

        return findings(self, waits_like=waits, given=given)

    def time_shift(self) -> Array:
        """Cycles of every row, corrected for the cost of marks; needs a calibration (see `warplens.cuda.calibrate`)."""
        from warplens.analyse.time_shift import time_shift

        return time_shift(self)

    def to_pandas(self) -> pandas.DataFrame:
        """The spans as a pandas DataFrame."""
        return self.spans.to_pandas()

    def verify(self) -> dict[str, KernelVerification]:
        """What the machine code of each kernel holds between the marks of its regions; empty if that is not known.

        The keys are those that launches have in `extra["machine_code"]`.
        """
        verifier, self.verifier = self.verifier, None
        if verifier is not None:
            self.meta = replace(self.meta, verification=verifier())
        return {key: KernelVerification.from_json(one) for key, one in self.meta.verification.items()}

    def stalls(self) -> AttributedPages:
        """What the warps of each region were stalled by: `regions`, and `notes` on what is missing; empty unless the
        profile sampled it (`wl.profile(stalls=True)`)."""
        from warplens.analyse.sampled_stalls import sampled_stalls

        return sampled_stalls(self)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write a `.warplens` file; `force=True` replaces one that exists."""
        from warplens.analyse.statistics import measures_to_keep
        from warplens.trace.io import save

        self.verify()
        return save(self, path, force=force, measures=partial(measures_to_keep, self))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        annotate: bool | None = None,
        torch: str | os.PathLike[str] | None = None,
        sources: Sequence[str | os.PathLike[str]] | None = None,
    ) -> Path:
        """Write the trace in the format that the suffix of `path` names, such as `.pftrace` or `.json.gz`.

        force     replace a file that exists
        annotate  add the cycles to each slice of a `.pftrace`; None does so up to 200,000 spans
        torch     a trace of the same run by torch.profiler: both go into one `.pftrace`, on one clock
        sources   folders that a `.html` may read the kernels' source from; None: the working directory
        """
        from warplens.export import export

        return export(self, path, force=force, annotate=annotate, torch=torch, sources=sources)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        limit: int | None = None,
        sources: Sequence[str | os.PathLike[str]] = (),
        merge_variants: bool = False,
    ) -> Path:
        """Write the HTML report: timeline, statistics and findings in one file.

        force           replace a file that exists
        limit           spans that the timeline keeps at most; 0 keeps all, None 2,000,000
        sources         folders to read the kernels' source from, besides the working directory
        merge_variants  give all variants of a kernel one row per region
        """
        from warplens.view.html import write_report

        return write_report(self, path, force=force, limit=limit, sources=sources, merge_variants=merge_variants)

    def plot(self, kind: str = "both", *, by: str | None = None, rows: int = 64, width: float = 10.0) -> Figure:
        """Draw the trace with matplotlib.

        kind   `timeline`, `stats` (the regions' durations) or `both`
        by     the timeline's rows: `sm`, `block` or `warp`; None: warps if they fit, else SMs
        rows   rows at most
        width  width of the figure in inches
        """
        from warplens.view.figures import plot

        return plot(self, kind, by=by, rows=rows, width=width)

    def _repr_html_(self) -> str:
        from warplens.view.notebook import trace_html

        return trace_html(self)

    def __repr__(self) -> str:
        spans, launches = plural(len(self), "span"), plural(len(self.meta.launches), "launch")
        lost = self.meta.losses.records_lost
        losses = f", {plural(lost, 'record')} lost" if lost else ""
        return printable(f"<warplens.Trace {spans}, {launches} of {first_of(self.kernels) or 'nothing'}{losses}>")


def _is_names(column: str) -> bool:
    return column in COLUMNS and bool(pa.types.is_dictionary(COLUMNS[column]))


def empty_table() -> pa.Table:
    """An empty table with every column."""
    names = {"kernel": (), "region": (), "kind": KINDS}
    columns = {name: np.empty(0, numpy_dtype(kind)) for name, kind in COLUMNS.items()}
    return pa.table(
        {name: dictionary_array(v, names[name]) if name in names else to_arrow(v) for name, v in columns.items()}
    )


def has_parts(trace: Trace, name: str) -> bool:
    """Whether `rows` makes parts of the column without building all of it."""
    columns = trace._columns
    return isinstance(columns, LazyColumns) and name in columns.parts and name not in trace._cache
