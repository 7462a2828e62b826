"""Put the entries of arrays into groups, and reduce each group to one value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int = npt.NDArray[np.int64]


def in_groups(key: Int, groups: int) -> list[Int]:
    """The places of each key from 0 to `groups`, in order; one sort serves all groups."""
    if not groups:
        return []
    return np.split(np.argsort(key, kind="stable"), np.cumsum(np.bincount(key, minlength=groups))[:-1])


def unique_rows(*columns: Int) -> tuple[list[Int], Int, Int]:
    """Distinct tuples in sorted order, the index of the first occurrence of each, and the tuple of each entry."""
    if not len(columns[0]):
        empty = np.empty(0, np.int64)
        return [empty for _ in columns], empty, empty
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        key = key * (high - low + 1) + (column - low)
    _, at, index = np.unique(key, return_index=True, return_inverse=True)
    return [np.asarray(column[at], np.int64) for column in columns], at, index.reshape(-1)


def reduce_by(what: np.ufunc, values: Array, index: Int, groups: int) -> Array:
    """Reduce the values of each group; every group has at least one."""
    if not groups:
        return values[:0]
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(groups))
    return np.asarray(what.reduceat(values[order], starts))
