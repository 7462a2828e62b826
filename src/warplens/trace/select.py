"""Select the rows of a trace that meet every condition, as a new trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.errors import UsageError, did_you_mean
from warplens.trace.arrays import to_arrow
from warplens.trace.barrier_rows import UNKNOWN_ARRIVAL
from warplens.trace.model import Trace
from warplens.trace.schema import Meta

Mask = npt.NDArray[np.bool_]
_NAMES = ("kernel", "region", "kind")
_NUMBERS = ("sm", "block", "warp", "rank", "launch", "device", "track", "lane", "depth")


def select(trace: Trace, *, time: tuple[float | None, float | None] | None = None, **conditions: Any) -> Trace:
    """Select by name (kernel, region, kind), number (sm, block, warp, rank, launch, device, track, lane, depth), time.

    A condition is one value or a list of them; a number may also be a `range`. `time=(a, b)` keeps spans that overlap
    [a, b) in ns; None leaves that side unbounded. Parents and arrivals outside the selection become unknown.
    """
    keep = np.ones(len(trace), bool)
    for name, wanted in conditions.items():
        if wanted is not None:
            keep &= _by_name(trace, name, wanted) if name in _NAMES else _by_number(trace, name, wanted)
    if time is not None:
        start, duration = trace.numpy("start_ns"), trace.numpy("dur_ns")
        low, high = time
        keep &= (start < high if high is not None else True) & (start + duration >= (low if low is not None else 0))
    return _take(trace, keep)


def _by_name(trace: Trace, name: str, wanted: str | list[str]) -> Mask:
    codes, names = trace.codes(name)
    requested = [wanted] if isinstance(wanted, str) else list(wanted)
    for requested_name in requested:
        if requested_name not in names:
            raise UsageError(f"no {name} named {requested_name!r} in this trace{did_you_mean(requested_name, names)}")
    return np.asarray(np.isin(codes, [names.index(requested_name) for requested_name in requested]))


def _by_number(trace: Trace, name: str, wanted: Any) -> Mask:
    if name not in _NUMBERS:
        raise UsageError(f"cannot select by {name!r}{did_you_mean(name, (*_NAMES, *_NUMBERS, 'time'))}")
    values = trace.numpy(name)
    if isinstance(wanted, range):
        return np.asarray(np.isin(values, np.fromiter(wanted, np.int64)))
    try:
        return np.asarray(np.isin(values, np.atleast_1d(np.asarray(wanted, np.int64))))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name}={wanted!r}: expected a whole number, a list of them or a range") from None


def _take(trace: Trace, keep: Mask) -> Trace:
    if keep.all():
        return trace
    table = trace.spans.filter(to_arrow(keep))
    row = np.cumsum(keep) - 1
    parent = trace.numpy("parent")[keep]
    moved = np.where((parent >= 0) & keep[parent], row[parent], -1).astype(np.int32)
    table = table.set_column(table.schema.get_field_index("parent"), "parent", to_arrow(moved))
    arrival = trace.numpy("released_by")[keep]
    kept = np.where(keep[arrival], row[arrival], UNKNOWN_ARRIVAL)
    moved = np.where(arrival >= 0, kept, arrival).astype(np.int32)
    table = table.set_column(table.schema.get_field_index("released_by"), "released_by", to_arrow(moved))
    return with_own_launches(table, trace.meta)


def with_own_launches(table: pa.Table, meta: Meta) -> Trace:
    """A trace of some rows whose document lists only the launches that they belong to."""
    launches = _launches(table)
    selected = tuple(info for info in meta.launches if (info.rank, info.launch) in launches)
    return Trace(table, replace(meta, launches=selected))


def _launches(table: pa.Table) -> set[tuple[int, int]]:
    distinct = table.select(["rank", "launch"]).group_by(["rank", "launch"]).aggregate([])
    return set(zip(distinct["rank"].to_pylist(), distinct["launch"].to_pylist(), strict=True))
