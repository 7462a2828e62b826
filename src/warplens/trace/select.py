"""Select the rows of a trace that meet every condition, as a new trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.errors import UsageError, check_name, did_you_mean
from warplens.trace.arrays import dictionary_array, numpy_dtype, run_starts, to_arrow, to_numpy
from warplens.trace.barrier_rows import UNKNOWN_ARRIVAL
from warplens.trace.joined_column import combined
from warplens.trace.model import Trace
from warplens.trace.schema import ABSENT, COLUMNS, Meta, joined_conditions
from warplens.trace.validation import RUN_COLUMNS

Mask = npt.NDArray[np.bool_]
_NAMES = ("kernel", "region", "kind")
_WHOLE_LAUNCHES = ("kernel", "launch", "rank", "device")
"""A selection by these leaves no row out of the launches that it keeps."""
_NUMBERS = ("sm", "block", "warp", "rank", "launch", "device", "track", "lane", "depth")


def select(trace: Trace, *, time: tuple[float | None, float | None] | None = None, **conditions: Any) -> Trace:
    """Select by name (kernel, region, kind), number (sm, block, warp, rank, launch, device, track, lane, depth), time.

    A condition is one value or a list of them; a number may also be a `range`. `time=(a, b)` keeps spans that begin
    before b and end at a or later, in ns; None leaves that side unbounded. Parents and arrivals outside the selection
    become unknown.
    """
    keep = np.ones(len(trace), bool)
    for name, wanted in conditions.items():
        if wanted is not None:
            keep &= _by_name(trace, name, wanted) if name in _NAMES else _by_number(trace, name, wanted)
    if time is not None:
        start, duration = trace.numpy("start_ns"), trace.numpy("dur_ns")
        low, high = _sides(time)
        keep &= (start < high if high is not None else True) & (start + duration >= (low if low is not None else 0))
    taken = _take(trace, keep)
    given = [name for name, wanted in (*conditions.items(), ("time", time)) if wanted is not None]
    return taken if taken is trace else in_part(taken, given)


def in_part(trace: Trace, conditions: Iterable[str]) -> Trace:
    """The same rows; the document says by which conditions others of their launches were left out."""
    cut = [name for name in conditions if name not in _WHOLE_LAUNCHES]
    selected = joined_conditions([trace.meta.selected, *cut])
    return Trace(trace.spans, replace(trace.meta, selected=selected)) if selected != trace.meta.selected else trace


def _sides(time: Any) -> tuple[float | None, float | None]:
    try:
        low, high = time
        _ = [float(side) for side in (low, high) if side is not None]
        backwards = low is not None and high is not None and low > high
    except (TypeError, ValueError):
        raise UsageError(f"time={time!r}: expected (begin, end) in ns; None leaves a side open") from None
    if backwards:
        raise UsageError(f"time={time!r}: ends before it begins")
    return low, high


def _by_name(trace: Trace, name: str, wanted: Any) -> Mask:
    names = trace.kernels if name == "kernel" else trace.codes(name)[1]
    requested = list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else [wanted]
    for requested_name in requested:
        check_name(f"no {name} named {requested_name!r} in this trace", requested_name, names)
    wanted_codes = [names.index(requested_name) for requested_name in requested]
    if name not in RUN_COLUMNS:
        return np.asarray(np.isin(trace.codes(name)[0], wanted_codes))
    runs = trace.runs(name)
    return np.repeat(np.isin(runs.values, wanted_codes), runs.counts)


def _by_number(trace: Trace, name: str, wanted: Any) -> Mask:
    if name not in _NUMBERS:
        raise UsageError(f"cannot select by {name!r}{did_you_mean(name, (*_NAMES, *_NUMBERS, 'time'))}")
    runs = trace.runs(name) if name in RUN_COLUMNS else None
    values = trace.numpy(name) if runs is None else runs.values
    try:
        numbers = np.fromiter(wanted, np.int64) if isinstance(wanted, range) else np.asarray(wanted, np.int64)
        found = np.isin(values, np.atleast_1d(numbers))
        return np.asarray(found if runs is None else np.repeat(found, runs.counts))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name}={wanted!r}: expected a whole number, a list of them or a range") from None


def _take(trace: Trace, keep: Mask) -> Trace:
    if keep.all():
        return trace
    columns = _rows(trace, keep)
    row = np.cumsum(keep, dtype=np.int32) - np.int32(1)
    parent, arrival = to_numpy(columns["parent"]), to_numpy(columns["released_by"])
    columns["parent"] = to_arrow(np.where((parent >= 0) & keep[parent], row[parent], np.int32(-1)))
    kept = np.where(keep[arrival], row[arrival], np.int32(UNKNOWN_ARRIVAL))
    columns["released_by"] = to_arrow(np.where(arrival >= 0, kept, arrival))
    return with_own_launches(pa.table(columns), trace.meta)


def _rows(trace: Trace, keep: Mask) -> dict[str, pa.Array]:
    """All columns of some rows, of which only those that need it are in memory as a whole."""
    rows, found = np.flatnonzero(keep), dict[str, pa.Array]()
    numbers = [name for name in trace.column_names if pa.types.is_integer(COLUMNS.get(name, pa.null()))]
    numbers = [name for name in numbers if name not in (*RUN_COLUMNS, *ABSENT)]
    parts: list[list[Any]] = [[] for _ in numbers]
    for begin, end, block in trace.blocks(*numbers):
        for part, values in zip(parts, block, strict=True):
            part.append(values[keep[begin:end]])
    for name in trace.column_names:
        if name in numbers:
            found[name] = to_arrow(
                np.concatenate([np.zeros(0, numpy_dtype(COLUMNS[name])), *parts[numbers.index(name)]])
            )
        elif name == "kernel":
            found[name] = dictionary_array(trace.runs(name).at(rows), trace.kernels)
        elif name in RUN_COLUMNS:
            found[name] = to_arrow(trace.runs(name).at(rows))
        elif name in _NAMES:
            codes, names = trace.codes(name)
            found[name] = dictionary_array(codes[rows], names)
        elif name == "value" and not trace.of_kind("value").any():
            found[name] = pa.nulls(len(rows), COLUMNS[name])
        else:
            found[name] = trace.column(name).filter(to_arrow(keep))
    return found


def with_own_launches(table: pa.Table, meta: Meta) -> Trace:
    """A trace of some rows whose document lists only the launches that they belong to."""
    launches = _launches(table)
    selected = tuple(info for info in meta.launches if (info.rank, info.launch) in launches)
    return Trace(table, replace(meta, launches=selected))


def _launches(table: pa.Table) -> set[tuple[int, int]]:
    rank, launch = (to_numpy(combined(table.column(name))) for name in ("rank", "launch"))
    heads = run_starts(rank.astype(np.int64) << 32 | launch)
    return set(zip(rank[heads].tolist(), launch[heads].tolist(), strict=True))
