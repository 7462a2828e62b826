"""Encode begins, ends and points as TrackEvent packets, in C if available, otherwise with numpy."""

from __future__ import annotations

import ctypes
import os
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.export.lanes import BEGIN, END, MAX_DEPTH, Events, events_of
from warplens.export.track_table import SPAN, TrackRows
from warplens.export.wire import MessagePacker, sizes

Array = npt.NDArray[Any]

CYCLES_NAME, OPEN_NAME = 1, 2
"""Interned ids of the debug annotations `cycles` and `open`."""


class Encoder(Protocol):
    """Writes the rows of consecutive tracks. Call `lanes` first, since each lane needs a packet sequence."""

    def lanes(self, row_start: Array) -> tuple[Array, Array]:
        """The lane of each row and the number of lanes of each track."""

    def write(self, out: BinaryIO, row_start: Array, sequence: Array) -> None:
        """Write the packets: lane 0 of each track on its `sequence`, further lanes on the following ones."""


def encoder(rows: TrackRows, cycles: Array | None, is_open: Array | None) -> Encoder:
    """The fastest available encoder. With `cycles`, every slice carries its cycles and whether it is open."""
    library = native.load()
    if library is None:
        return NumpyEncoder(rows, cycles, is_open)
    return NativeEncoder(library, rows, cycles, is_open)


class _Columns(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p) for name in ("kind", "region", "parent", "depth", "start", "duration", "cycles", "open")
    ]


class NativeEncoder:
    """`wl_tracks` of native/perfetto.c."""

    def __init__(self, library: ctypes.CDLL, rows: TrackRows, cycles: Array | None, is_open: Array | None) -> None:
        self._call = library.wl_tracks
        self._call.restype = ctypes.c_int
        arrays = [rows.kind, rows.region, rows.parent, rows.depth, rows.start, rows.duration, cycles, is_open]
        self._arrays = arrays  # keep a reference: the structure holds bare addresses
        self._columns = _Columns(*(native.pointer(array) for array in arrays))
        self._lane_of = np.empty(0, np.int32)
        self._lanes = np.empty(0, np.int32)

    def lanes(self, row_start: Array) -> tuple[Array, Array]:
        self._walk(row_start, None, -1)
        rows = int(row_start[-1] - row_start[0])
        return self._lane_of[:rows], self._lanes[: len(row_start) - 1]

    def write(self, out: BinaryIO, row_start: Array, sequence: Array) -> None:
        out.flush()
        self._walk(row_start, np.ascontiguousarray(sequence, np.uint32), out.fileno())

    def _walk(self, row_start: Array, sequence: Array | None, file: int) -> None:
        starts = np.ascontiguousarray(row_start, np.int64)
        tracks, rows = len(starts) - 1, int(starts[-1] - starts[0])
        if len(self._lane_of) < rows:
            self._lane_of = np.empty(rows, np.int32)
        if len(self._lanes) < tracks:
            self._lanes = np.empty(tracks, np.int32)
        error = self._call(
            ctypes.byref(self._columns),
            native.pointer(starts),
            ctypes.c_int64(tracks),
            ctypes.c_int64(MAX_DEPTH),
            native.pointer(self._lane_of),
            native.pointer(self._lanes),
            native.pointer(sequence),
            ctypes.c_int(file),
        )
        if error < 0:
            raise MemoryError("no memory left to encode the trace")
        if error:
            raise OSError(error, os.strerror(error))


class NumpyEncoder:
    """The same in numpy, row by row for tracks whose spans do not nest."""

    def __init__(self, rows: TrackRows, cycles: Array | None, is_open: Array | None) -> None:
        self._rows = rows
        self._cycles = cycles
        self._open = is_open
        self._events: tuple[int, Events] | None = None

    def lanes(self, row_start: Array) -> tuple[Array, Array]:
        events, lane_of, lanes = events_of(self._rows, row_start)
        self._events = int(row_start[0]), events
        return lane_of, lanes

    def write(self, out: BinaryIO, row_start: Array, sequence: Array) -> None:
        if self._events is None or self._events[0] != row_start[0]:
            self.lanes(row_start)
        assert self._events is not None
        events = self._events[1]
        out.write(self._pack(events, np.asarray(sequence, np.int64)[events.track] + events.lane))

    def _pack(self, events: Events, sequence: npt.NDArray[np.int64]) -> bytes:
        rows, row = self._rows, events.row
        time = rows.start[row] + np.where(events.what == END, rows.duration[row], 0)
        delta = _since_last(sequence, time)
        named = events.what != END
        name = rows.region[row].astype(np.uint64) + np.uint64(1)
        event_bytes = np.where(named, 3 + sizes(name), 2)
        annotated = is_open = cycles = None
        if self._cycles is not None and self._open is not None:
            annotated = (events.what == BEGIN) & (rows.kind[row] == SPAN)
            is_open = annotated & self._open[row].astype(bool)
            cycles = self._cycles[row].astype(np.uint64)
            event_bytes += annotated * (5 + sizes(cycles)) + is_open * 6
        packer = MessagePacker(len(row))
        packer.event_head(sequence.astype(np.uint64), delta, event_bytes)
        packer.constant(b"\x48")
        packer.byte(events.what)
        packer.constant(b"\x50", named)
        packer.varint(name, named)
        if annotated is not None and is_open is not None and cycles is not None:
            packer.constant(b"\x22", annotated)
            packer.raw((3 + sizes(cycles)).astype(np.uint8)[:, None], annotated)
            packer.constant(bytes((0x08, CYCLES_NAME, 0x20)), annotated)
            packer.varint(cycles, annotated)
            packer.constant(bytes((0x22, 4, 0x08, OPEN_NAME, 0x10, 1)), is_open)
        return packer.tobytes()


def _since_last(sequence: Array, time: Array) -> npt.NDArray[np.uint64]:
    """Time since the previous event of the same sequence; the absolute time for its first."""
    order = np.argsort(sequence, kind="stable")
    times = time[order]
    delta = np.diff(times, prepend=0)
    first = np.flatnonzero(np.diff(sequence[order], prepend=-1))
    delta[first] = times[first]
    out = np.empty(len(time), np.uint64)
    out[order] = delta.astype(np.uint64)
    return out
