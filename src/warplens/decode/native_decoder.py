"""Call the C decoder through ctypes: once for all launches, with a range of tracks for each thread."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.anchor_fit import ClockLines
from warplens.decode.decoded_rows import MAX_DETAILS, SPAN, Counter, DecodedRows, Detail, RegionTable, RowPlan
from warplens.decode.track_windows import TrackWindows
from warplens.native import address, pointer
from warplens.record.capture import Launch

_P, _I = ctypes.c_void_p, ctypes.c_int64
_DETAIL_FIELDS = 5
_MOST_THREADS = 16


_Sources = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""The address of each launch's bytes, and the capacity of its tracks."""


class _NativeTracks(ctypes.Structure):
    _fields_ = [
        (name, _P)
        for name in (
            "raw", "capacity", "table", "launch", "offset", "first", "slots", "row_start", "anchor_start", "holds",
            "from_exit", "start_clock", "exit_clock", "start_ns", "exited", "lossy", "rate",
        )
    ]  # fmt: skip


class _NativeRegions(ctypes.Structure):
    _fields_ = [
        ("keys", _P),
        ("codes", _P),
        ("direct", _P),
        ("direct_size", ctypes.c_uint32),
        ("mask", ctypes.c_uint32),
        ("unknown", ctypes.c_int32),
    ]


class _NativeRows(ctypes.Structure):
    _fields_ = [
        (name, _P)
        for name in (
            "region", "parent", "kind", "depth", "start", "duration", "open", "value", "has_value", "anchor_clock",
            "anchor_ns",
        )
    ]  # fmt: skip


class NativeDecoder:
    """The C implementation of the decoder."""

    def __init__(self, library: ctypes.CDLL, threads: int | None = None) -> None:
        self._threads = threads or min(os.cpu_count() or 1, _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)  # starts threads when they are needed, and they end with it
        self._known: tuple[TrackWindows, _Sources] | None = None
        self._count, self._decode = library.wl_count, library.wl_decode
        self._place, self._inside, self._times = library.wl_place, library.wl_inside, library.wl_times
        self._earliest = library.wl_earliest
        self._earliest.restype = ctypes.c_double

    def count(self, launches: Sequence[Launch], windows: TrackWindows) -> RowPlan:
        tracks = len(windows)
        rows, anchors = np.empty((2, tracks + 1), np.int64)
        holds = np.empty(tracks, np.uint8)
        rows[0] = anchors[0] = 0
        raw, capacity = self._sources(launches, windows)
        # How many slots there are up to each track's end, where the anchors are counted afterwards.
        total = np.cumsum(windows.slots, out=anchors[1:])
        columns = raw, capacity, windows.launch, windows.offset, windows.first, windows.slots

        def work(begin: int, end: int) -> None:
            status = self._count(
                *map(pointer, columns), _I(begin), _I(end), pointer(rows[1:]), pointer(anchors[1:]), pointer(holds)
            )  # fmt: skip
            _check(status)

        self._in_parallel(work, len(windows), total)
        return RowPlan(np.cumsum(rows, out=rows), np.cumsum(anchors, out=anchors), holds)

    def fill(
        self,
        launches: Sequence[Launch],
        windows: TrackWindows,
        plan: RowPlan,
        regions: Sequence[RegionTable],
        out: DecodedRows,
    ) -> list[Detail]:
        """Decode every track into its rows, with a table of regions per launch; return the first malformed records."""
        tables = list(dict.fromkeys(regions))
        number = {table: at for at, table in enumerate(tables)}
        raw, capacity = self._sources(launches, windows)
        arrays = {
            "raw": raw,
            "capacity": capacity,
            "table": np.array([number[table] for table in regions], np.int64),
            **{name: getattr(windows, name).view(np.uint8) for name in ("exited", "lossy", "from_exit")},
        }
        for name, *_ in _NativeTracks._fields_:
            arrays.setdefault(name, getattr(plan, name, getattr(windows, name, None)))
        tracks = _NativeTracks(*(pointer(arrays[name]) for name, *_ in _NativeTracks._fields_))
        native_tables = (_NativeRegions * len(tables))(*map(_native_regions, tables))
        rows = _NativeRows(*(pointer(getattr(out, name)) for name, *_ in _NativeRows._fields_))
        found: list[Detail] = []

        def work(begin: int, end: int) -> None:
            counters = np.zeros(len(Counter), np.int64)
            details = np.zeros((MAX_DETAILS, _DETAIL_FIELDS), np.int64)
            n = np.zeros(1, np.int64)
            status = self._decode(
                ctypes.byref(tracks), _I(begin), _I(end), native_tables, ctypes.byref(rows), pointer(counters),
                pointer(details), pointer(n),
            )  # fmt: skip
            _check(status)
            out.counters += counters
            found.extend(Detail(Counter(what), *rest) for what, *rest in details[: n[0]].tolist())

        self._in_parallel(work, len(windows), plan.row_start[1:])
        return sorted(found, key=lambda detail: (detail.track, detail.slot))[:MAX_DETAILS]

    def place(
        self, row_start: npt.NDArray[np.int64], at: npt.NDArray[np.int64], lines: ClockLines, zero: int,
        rows: DecodedRows,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:  # fmt: skip
        """The start and duration of every row in ns since `zero`; track i has the line number `at[i]`."""
        start_ns, duration_ns = np.empty(len(rows.start), np.int64), np.empty(len(rows.start), np.int64)
        known = _line_columns(replace(lines, knot_ns=lines.knot_ns - zero))

        def work(begin: int, end: int) -> None:
            self._place(
                pointer(row_start), _I(begin), _I(end), pointer(at), *map(pointer, known), pointer(rows.start),
                pointer(rows.duration), pointer(start_ns), pointer(duration_ns),
            )  # fmt: skip

        self._in_parallel(work, len(row_start) - 1, row_start[1:])
        return start_ns, duration_ns

    def earliest(
        self, lines: ClockLines, at: npt.NDArray[np.int64], row_start: npt.NDArray[np.int64], rows: DecodedRows
    ) -> float | None:
        """The earliest begin of a track's first row in ns; None without a row."""
        known, found = _line_columns(lines), list[float]()

        def work(begin: int, end: int) -> None:
            columns = map(pointer, (at, *known, rows.start))
            found.append(self._earliest(pointer(row_start), _I(begin), _I(end), *columns))

        self._in_parallel(work, len(row_start) - 1, None)
        return min(found) if len(rows.start) else None

    def times(
        self, lines: ClockLines, at: npt.NDArray[np.int64], clock: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """`lines.at_line`, by several threads."""
        out, at, clock = np.empty(len(at)), np.ascontiguousarray(at), np.ascontiguousarray(clock)
        known = _line_columns(lines)

        def work(begin: int, end: int) -> None:
            self._times(pointer(at), _I(begin), _I(end), *map(pointer, (*known, clock, out)))

        self._in_parallel(work, len(at), None)
        return out

    def inside(
        self, plan: RowPlan, start_clock: npt.NDArray[np.int64], lived: npt.NDArray[np.int64], rows: DecodedRows
    ) -> npt.NDArray[np.int64]:
        """The cycles of each track that are inside at least one region."""
        out = np.empty(len(lived), np.int64)

        def work(begin: int, end: int) -> None:
            self._inside(
                pointer(plan.row_start), _I(begin), _I(end), pointer(rows.parent), pointer(rows.kind),
                _I(SPAN), pointer(rows.start), pointer(rows.duration), pointer(start_clock),
                pointer(lived), pointer(out),
            )  # fmt: skip

        self._in_parallel(work, len(lived), plan.row_start[1:] - plan.row_start[0])
        return out

    def _sources(self, launches: Sequence[Launch], windows: TrackWindows) -> _Sources:
        """Where the launches are; kept for the next call."""
        if self._known is None or self._known[0] is not windows:
            raw = np.array([address(launch.raw) for launch in launches], np.int64)
            self._known = windows, (raw, np.array([one.capacity for one in launches], np.int64))
        return self._known[1]

    def _in_parallel(self, work: Callable[[int, int], None], count: int, total: npt.NDArray[np.int64] | None) -> None:
        """Call `work` on ranges of `count` tracks of about equal weight; `total` is the weight up to the end of each,
        or None where all weigh the same."""
        weight = count if total is None else int(total[-1]) if count else 0
        threads = min(self._threads, max(1, weight >> 16))
        cuts = np.linspace(0, weight, threads + 1)[1:-1]
        cuts = (cuts.astype(np.int64) if total is None else np.searchsorted(total, cuts)).tolist()
        ranges = list(zip([0, *cuts], [*cuts, count], strict=True))
        if threads == 1:
            work(*ranges[0])
            return
        for done in [self._pool.submit(work, *span) for span in ranges]:
            done.result()


def _line_columns(lines: ClockLines) -> list[npt.NDArray[np.generic]]:
    columns = lines.first, lines.count, lines.knot_clock, lines.knot_ns, lines.slope
    return [np.ascontiguousarray(column) for column in columns]


def _native_regions(table: RegionTable) -> _NativeRegions:
    arrays = map(pointer, (table.keys, table.values, table.direct))
    return _NativeRegions(*arrays, len(table.direct), table.mask, table.unknown)


def _check(status: int) -> None:
    if status:
        raise MemoryError("the decoder ran out of memory")
