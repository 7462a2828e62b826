"""Format spans and instants as events of Chrome's JSON with the C code of native/chrome.c."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.export.track_table import TrackPart
from warplens.native import pointer

Array = npt.NDArray[Any]
_NUMBERS = 256
"""The most bytes that the numbers of an event and the keys between them take."""


class _EventColumns(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("kind", "region", "start", "duration", "cycles")]


class _Texts(ctypes.Structure):
    """Texts one after the other, as C reads them."""

    _fields_ = [("bytes", ctypes.c_char_p), ("at", ctypes.c_void_p)]

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        self.ends = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=self.ends[1:])
        self.longest = max(map(len, encoded), default=0)
        super().__init__(b"".join(encoded), pointer(self.ends))


class NativeEvents:
    """`wl_chrome_events` for the rows of some tracks; the bytes are those of export/chrome.py."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = library.wl_chrome_events
        self._call.restype = ctypes.c_int64
        self._out, self._written = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def of(
        self,
        kind: int,
        part: TrackPart,
        tracks: tuple[int, int],
        lane_of: Array,
        first_head: Array,
        texts: tuple[Sequence[str], Sequence[str], Sequence[str]],
    ) -> memoryview:
        """The events of one kind of a range of tracks. `texts` are the begin of an event by region, its place by lane,
        counted from `first_head` of its track, and its end by track. The call after the next overwrites the result."""
        rows = part.rows
        arrays = rows.kind, rows.region, rows.start, rows.duration, np.ascontiguousarray(part.cycles, np.int64)
        columns = _EventColumns(*map(pointer, arrays))
        row_start = part.row_start[tracks[0] - part.begin : tracks[1] - part.begin + 1]
        lanes, first = np.ascontiguousarray(lane_of, np.int32), np.ascontiguousarray(first_head, np.int64)
        names, heads, tails = map(_Texts, texts)
        most = len(lane_of) * (names.longest + heads.longest + tails.longest + _NUMBERS)
        self._out, self._written = self._written, self._out
        if len(self._out) < most:
            self._out = np.empty(most, np.uint8)
        size = self._call(
            ctypes.byref(columns),
            pointer(row_start),
            ctypes.c_int64(len(row_start) - 1),
            ctypes.c_int(kind),
            pointer(lanes),
            pointer(first),
            *map(ctypes.byref, (names, heads, tails)),
            pointer(self._out),
        )
        return self._out[:size].data
