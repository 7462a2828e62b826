"""The trace: a table of spans with its metadata."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.sass.region_code import KernelVerification
from warplens.text import printable
from warplens.trace.arrays import dictionary_array, numpy_dtype, to_arrow, to_numpy
from warplens.trace.columns import Columns, LazyColumns, ParquetColumns, TableColumns
from warplens.trace.schema import COLUMNS, KINDS, Meta
from warplens.wording import plural

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from warplens.analyse.statistics import Statistics

Array = npt.NDArray[Any]


class Trace:
    """Spans of any number of launches, kernels and ranks. Columns are computed or read on first use."""

    def __init__(self, columns: Columns | pa.Table, meta: Meta | None = None) -> None:
        self._columns: Columns = TableColumns(columns) if isinstance(columns, pa.Table) else columns
        self._cache: dict[str, pa.Array] = {}
        self.meta = meta or Meta()
        self.checked: bool | None = None
        """Whether its file has checksums; None for a trace that was not read from a file."""
        self.verifier: Callable[[], Mapping[str, Mapping[str, Any]]] | None = None
        """Verifies the regions of a trace that was just recorded, which takes a disassembler."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows themselves: the file may be gone, or be another one, where they are unpickled."""
        return Trace, (self.spans, self.meta)

    @cached_property
    def spans(self) -> pa.Table:
        """All spans with the columns of `warplens.trace.schema.COLUMNS`."""
        self.prefetch(*COLUMNS)
        return pa.table({name: self.column(name) for name in COLUMNS})

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

    def numpy(self, name: str) -> Array:
        """One plain column as a numpy array; `value` has NaN where there is none."""
        array = self.column(name)
        if pa.types.is_dictionary(array.type):
            raise TypeError(f"column {name!r} holds names; use codes({name!r})")
        return to_numpy(array)

    def at(self, name: str, rows: Array) -> Array:
        """Numbers, or codes of names, at some rows only; cheap for columns that are constant along a track."""
        if name not in self._cache and isinstance(self._columns, LazyColumns) and name in self._columns.takers:
            return self._columns.takers[name](rows)
        dictionary = pa.types.is_dictionary(COLUMNS[name])
        return np.asarray((self.codes(name)[0] if dictionary else self.numpy(name))[rows])

    def codes(self, name: str) -> tuple[Array, list[str]]:
        """A column of names as integer codes and the names they index."""
        array = self.column(name)
        return to_numpy(array.indices), array.dictionary.to_pylist()

    def of_kind(self, kind: str) -> npt.NDArray[np.bool_]:
        """A mask of the rows of one kind: span, instant or value."""
        codes, names = self.codes("kind")
        return np.asarray(codes == names.index(kind)) if kind in names else np.zeros(len(self), bool)

    def __len__(self) -> int:
        return self._columns.rows

    @property
    def regions(self) -> list[str]:
        """The names of all regions, in the order of their first use."""
        return self.codes("region")[1]

    @property
    def kernels(self) -> list[str]:
        """The names of all kernels."""
        return self.codes("kernel")[1]

    def select(self, **conditions: Any) -> Trace:
        """The spans that meet every condition; see `warplens.trace.select.select`."""
        from warplens.trace.select import select

        return select(self, **conditions)

    def stats(self, by: str = "region", **options: Any) -> Statistics:
        """Statistics per region, or per kernel, sm, warp or block; `merge_variants=True` merges a kernel's variants."""
        from warplens.analyse.statistics import statistics

        return statistics(self, by=by, **options)

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

    def save(self, path: str | os.PathLike[str], *, force: bool = True) -> Path:
        """Write a `.warplens` file."""
        from warplens.trace.io import save

        self.verify()
        return save(self, path, force=force)

    def export(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write another format, picked by the suffix of `path`."""
        from warplens.export import export

        return export(self, path, **options)

    def plot(self, kind: str = "both", **options: Any) -> Figure:
        """Draw the timeline, the regions' durations (`stats`) or both as a matplotlib figure."""
        from warplens.view.figures import plot

        return plot(self, kind, **options)

    def _repr_html_(self) -> str:
        from warplens.view.notebook import trace_html

        return trace_html(self)

    def __repr__(self) -> str:
        kernels = ", ".join(self.kernels[:3]) + (", …" if len(self.kernels) > 3 else "")
        spans, launches = plural(len(self), "span"), plural(len(self.meta.launches), "launch")
        return printable(f"<warplens.Trace {spans}, {launches} of {kernels or 'nothing'}>")


def empty_table() -> pa.Table:
    """An empty table with every column."""
    names = {"kernel": (), "region": (), "kind": KINDS}
    columns = {name: np.empty(0, numpy_dtype(kind)) for name, kind in COLUMNS.items()}
    return pa.table(
        {name: dictionary_array(v, names[name]) if name in names else to_arrow(v) for name, v in columns.items()}
    )
