"""A trace of many files, of which only the documents are in memory; rows are read part by part, or by selection."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from warplens.errors import CaptureError, check_name
from warplens.trace import io
from warplens.trace.arrays import dictionary_array, to_arrow
from warplens.trace.columns import TableColumns
from warplens.trace.merge import TimeAxis, merge, merge_meta, placed
from warplens.trace.model import Condition, Trace, empty_table
from warplens.trace.parts import launches_wanted
from warplens.trace.row_groups import Wanted
from warplens.trace.schema import KINDS, Meta
from warplens.trace.select import in_part, with_own_launches

_NAMES = {"kernel", "region", "kind"}


@dataclass(frozen=True)
class PartEntry:
    """One file of a dataset, closed: a run may have more ranks than a process may open files."""

    path: Path
    rows: int
    meta: Meta
    checked: bool
    stamp: tuple[int, int]
    """Size and time of the last change: a rank that still runs may replace its part."""


@dataclass(frozen=True)
class RowSelection:
    """Conditions as `Trace.select` takes them."""

    time: tuple[float | None, float | None] | None = None
    conditions: tuple[tuple[str, Condition], ...] = ()

    @staticmethod
    def of(time: tuple[float | None, float | None] | None = None, **conditions: Condition | None) -> RowSelection:
        return RowSelection(time, tuple((name, value) for name, value in conditions.items() if value is not None))

    def __bool__(self) -> bool:
        return self.time is not None or bool(self.conditions)

    def values(self, name: str) -> Collection[Any] | None:
        """What a column may hold; None for anything."""
        given = dict(self.conditions).get(name)
        if given is None or isinstance(given, range):
            return given
        return [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)

    def wanted(self, meta: Meta, axis: TimeAxis) -> Wanted:
        """What to read of a part, whose launches the axis moves by different amounts."""
        low, high = self.time or (None, None)
        shifts = axis.shifts(meta).values() or [0]
        return Wanted(
            launches_wanted(meta, *(self.values(name) for name in ("kernel", "launch", "rank"))),
            None if low is None else low - max(shifts),
            None if high is None else high - min(shifts),
        )

    def of_part(self, trace: Trace, axis: TimeAxis) -> Trace:
        """The rows of a part that meet every condition; a name that the part does not hold meets none."""
        here = dict(self.conditions)
        for name in _NAMES & here.keys():
            here[name] = [one for one in self.values(name) or () if one in trace.codes(name)[1]]
        if self.time is not None:
            at = trace.spans.schema.get_field_index("start_ns")
            trace = Trace(trace.spans.set_column(at, "start_ns", to_arrow(placed(trace, axis))), trace.meta)
        return trace.select(time=self.time, **here) if self else trace

    def check_names(self, name: str, known: Collection[str]) -> None:
        """Raise an error if a condition names what is nowhere."""
        for wanted in self.values(name) or ():
            check_name(f"no {name} named {wanted!r} in this trace", wanted, known)


@dataclass(frozen=True)
class Dataset:
    """The parts of a trace, in order; `meta` is the document of all of them together."""

    path: Path
    parts: tuple[PartEntry, ...]

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Dataset:
        """Read the documents of a folder of parts, or of one file."""
        source = Path(path)
        if not source.exists():
            raise CaptureError(source, "file", "does not exist", "check the path")
        files = io.part_files(source) if source.is_dir() else [source]
        with io.one_of_parts(len(files)):
            parts = tuple(_entry(file) for file in files)
        io.check_one_run(source, {part.path: part.meta for part in parts})
        return Dataset(source, parts)

    @cached_property
    def meta(self) -> Meta:
        metas = [part.meta for part in self.parts]
        return metas[0] if len(metas) == 1 else merge_meta(metas, self.axis)

    @cached_property
    def axis(self) -> TimeAxis:
        """The time axis of all parts, whichever are selected."""
        return TimeAxis.of([part.meta for part in self.parts])

    @cached_property
    def shifts(self) -> dict[tuple[int, int], int]:
        """By rank and number, how much later each launch is on the axis of the dataset than on that of its part."""
        if len(self.parts) == 1:
            return {}
        return {key: ns for part in self.parts for key, ns in self.axis.shifts(part.meta).items()}

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def check(self, selection: RowSelection) -> None:
        """Raise an error if a selection names a kernel that no launch has."""
        selection.check_names("kernel", {info.kernel for info in self.meta.launches})

    def outline(self) -> Trace:
        """A trace that knows its document, its length and the names of its kernels and regions, and no row."""
        made = Trace(_OutlineColumns(self), self.meta)
        made.checked = all(part.checked for part in self.parts)
        return made

    def regions(self) -> list[str]:
        """The names of all regions, in the order of their first use."""
        return list(dict.fromkeys(name for part in self.parts for name in io.open_part(part.path).trace().regions))

    def select(self, selection: RowSelection) -> Trace:
        """The rows that meet every condition; row groups that cannot hold one are not read."""
        self.check(selection)
        found, names = [], {"region": set[str](), "kind": set(KINDS)}
        rest = replace(selection, time=None)
        for part in self.parts:
            wanted = selection.wanted(part.meta, self.axis)
            if wanted.launches == set():
                continue
            opened = io.open_part(part.path)
            if groups := opened.groups(wanted):
                read = opened.trace(groups)
                names["region"].update(read.regions)
                chosen = rest.of_part(read, self.axis)
                found.append(with_own_launches(chosen.spans, chosen.meta))
        for name, known in names.items() if found else ():
            selection.check_names(name, known)
        merged = found[0] if len(self.parts) == len(found) == 1 else merge(found, self.axis)
        return in_part(merged.select(time=selection.time), ["time"]) if selection.time else merged


class _OutlineColumns:
    """Columns without rows, of which only the lists of names are those of the dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset, self.rows = dataset, dataset.rows

    def column(self, name: str) -> pa.Array:
        if name == "kernel":
            names = list(dict.fromkeys(info.kernel for info in self._dataset.meta.launches))
            return dictionary_array(np.empty(0, np.int32), names)
        if name == "region":
            return dictionary_array(np.empty(0, np.int32), self._dataset.regions())
        return TableColumns(empty_table()).column(name)


def _entry(path: Path) -> PartEntry:
    opened = io.open_part(path)
    return PartEntry(path, opened.rows, opened.meta, opened.file.checked, opened.file.stamp)
