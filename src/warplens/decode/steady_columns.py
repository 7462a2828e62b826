"""The columns of decoded rows that need neither the clock fit nor the launches that follow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.decode.decoded_rows import DecodedRows
from warplens.decode.track_windows import TrackWindows
from warplens.trace.arrays import dictionary_array, numpy_dtype, to_arrow
from warplens.trace.schema import COLUMNS, KINDS

Int64 = npt.NDArray[np.int64]
_OF_LAUNCHES = ("rank", "device", "launch")
_OF_TRACKS = ("sm", "block", "warp", "lane", "track")
_OF_ROWS = {"depth": "depth", "parent": "parent", "start_cycle": "start", "dur_cycles": "duration"}
STEADY = (*_OF_LAUNCHES, *_OF_TRACKS, *_OF_ROWS, "kind", "open", "value")


class SteadyColumns:
    """Columns of any range of rows; `devices` has the device of each launch. Those of tracks are repeated for each of
    the track's rows, and those of launches likewise."""

    def __init__(self, rank: int, devices: Int64, windows: TrackWindows, row_start: Int64, rows: DecodedRows) -> None:
        self._rank, self._devices, self._windows, self._row_start, self._rows = rank, devices, windows, row_start, rows
        self._launch_start = row_start[windows.bounds]

    def column(self, name: str, first: int = 0, last: int | None = None) -> pa.Array:
        """The rows from `first` up to `last`, or up to the end."""
        last, rows = len(self._rows.start) if last is None else last, self._rows
        here = slice(first, last)
        if name in _OF_LAUNCHES:
            return self._of_launches(name, first, last)
        if name in _OF_TRACKS:
            return self._of_tracks(name, first, last)
        if name in _OF_ROWS:
            return to_arrow(getattr(rows, _OF_ROWS[name])[here])
        if name == "kind":
            return dictionary_array(rows.kind[here].astype(numpy_dtype(COLUMNS[name]), copy=False), KINDS)
        if name == "open":
            return to_arrow(rows.open[here].view(bool))
        if not len(rows.value):
            return pa.nulls(last - first, pa.float64())
        return to_arrow(rows.value[here], missing=rows.has_value[here] == 0)

    def _of_launches(self, name: str, first: int, last: int) -> pa.Array:
        edges = np.clip(self._launch_start, first, last)
        counts = edges[1:] - edges[:-1]
        launches = np.flatnonzero(counts)
        values = launches if name == "launch" else np.full(len(launches), self._rank)
        values = self._devices[launches] if name == "device" else values
        return to_arrow(np.repeat(values.astype(numpy_dtype(COLUMNS[name])), counts[launches]))

    def _of_tracks(self, name: str, first: int, last: int) -> pa.Array:
        row_start, (begin, end) = self._row_start, (0, len(self._windows))
        if first or last < len(self._rows.start):
            begin = max(int(np.searchsorted(row_start, first, side="right")) - 1, 0)
            end = max(int(np.searchsorted(row_start, last, side="left")), begin)
        edges: Int64 = np.clip(row_start[begin : end + 1], first, last)
        counts = edges[1:] - edges[:-1]
        values: Int64 = np.arange(begin, end) if name == "track" else getattr(self._windows, name)[begin:end]
        return to_arrow(np.repeat(values.astype(numpy_dtype(COLUMNS[name])), counts))
