"""Where the row groups of a file end, and which of them a reader needs.

A row group holds whole tracks, and whole launches where they are small. So its rows can be analysed alone, since the
parent of a span is in the same track, and the range of launches and times that its statistics state is narrow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

MOST_ROWS = 1 << 18
_LEAST_ROWS = 1 << 16
"""Launches are put together up to this many rows: a row group costs about 2 KB besides its rows."""


def row_groups(tracks: npt.NDArray[Any], launches: npt.NDArray[Any], rows: int) -> list[tuple[int, int]]:
    """The first row of each row group and the row after its last, for the first rows of tracks and of launches.

    All but the last stay as they are when more launches follow.
    """
    launches = np.append(launches, rows)
    groups, begin = [], 0
    while begin < rows:
        # Whole launches until there are enough rows; a larger launch is cut between tracks.
        end = int(launches[np.searchsorted(launches, min(begin + _LEAST_ROWS, rows))])
        if end - begin > MOST_ROWS:
            at = int(np.searchsorted(tracks, begin + MOST_ROWS, side="right")) - 1
            next_track = tracks[at + 1] if at + 1 < len(tracks) else rows
            end = int(tracks[at] if tracks[at] > begin else next_track)
        groups.append((begin, end))
        begin = end
    return groups


@dataclass(frozen=True)
class Wanted:
    """What a reader wants of one part: some launches (None: all), and a stretch of the part's own time in ns."""

    launches: Collection[int] | None = None
    begin_ns: float | None = None
    end_ns: float | None = None


def wanted_groups(metadata: pq.FileMetaData, wanted: Wanted) -> list[int]:
    """The row groups that may hold a wanted row, by the statistics in the file's footer."""
    if wanted.launches is not None and not wanted.launches:
        return []
    launches = None if wanted.launches is None else np.sort(np.fromiter(wanted.launches, np.int64))
    return [at for at in range(metadata.num_row_groups) if _may_hold(metadata.row_group(at), wanted, launches)]


def is_cut_between(name: str, metadata: pq.FileMetaData, group: int) -> bool:
    """Whether a track, or a launch, ends where this row group ends; False where the file does not say."""
    if group + 1 >= metadata.num_row_groups:
        return True
    here, after = (_range(metadata.row_group(at), name) for at in (group, group + 1))
    return here is not None and after is not None and here[1] < after[0]


def _may_hold(group: pq.RowGroupMetaData, wanted: Wanted, launches: npt.NDArray[np.int64] | None) -> bool:
    held = _range(group, "launch")
    if (
        launches is not None
        and held is not None
        and np.searchsorted(launches, held[0]) == np.searchsorted(launches, held[1], side="right")
    ):
        return False
    start, lasted = _range(group, "start_ns"), _range(group, "dur_ns")
    if start is not None and wanted.end_ns is not None and start[0] >= wanted.end_ns:
        return False
    known = start is not None and lasted is not None and wanted.begin_ns is not None
    return not (known and start[1] + lasted[1] < wanted.begin_ns)  # type: ignore[index, operator]


def _range(group: pq.RowGroupMetaData, name: str) -> tuple[int, int] | None:
    """The least and the greatest value of a column in a row group, where its statistics say so."""
    for at in range(group.num_columns):
        chunk = group.column(at)
        if chunk.path_in_schema == name:
            found = chunk.statistics
            return (found.min, found.max) if found is not None and found.has_min_max else None
    return None
