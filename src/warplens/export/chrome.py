"""Chrome's JSON trace, for viewers that do not read Perfetto's own format.

Times are microseconds with the nanoseconds as decimals; `args` holds the original numbers. C code writes the text
(chrome_events.py); without a compiler it is assembled column by column. The format cannot express on which side of an
edge a span of zero length lies; a `.pftrace` can.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens import native
from warplens.export.barrier_arrows import BARRIER_CATEGORY, RELEASED, barrier_arrows
from warplens.export.chrome_events import NativeEvents
from warplens.export.descriptions import describe_launch, launch_facts
from warplens.export.events import encoder
from warplens.export.track_table import INSTANT, SPAN, VALUE, TrackPart, TrackTable, stack_in_lanes
from warplens.export.uncached_file import UncachedFile
from warplens.export.write_behind import WriteBehind
from warplens.files import atomic_write
from warplens.trace.model import Trace

Array = npt.NDArray[Any]
_GZIP_LEVEL = 4
_PREFIXES = {SPAN: '{"ph":"X","name":', INSTANT: '{"ph":"i","s":"t","name":'}


def write(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.json` or `.json.gz`; cycles are always included."""
    writer = ChromeWriter(trace, TrackTable(trace, by_part=True))
    with atomic_write(path, force=force) as out:
        if path.name.lower().endswith(".gz"):
            with (
                gzip.GzipFile("", "wb", _GZIP_LEVEL, out, mtime=0) as packed,
                io.BufferedWriter(cast(Any, packed)) as text,
            ):
                writer.write(WriteBehind(text))
        else:
            with UncachedFile(out) as uncached:
                writer.write(WriteBehind(uncached))


class ChromeWriter:
    """One export: names first, then launches, then the warps chunk by chunk."""

    def __init__(self, trace: Trace, tracks: TrackTable) -> None:
        self._trace, self._tracks = trace, tracks
        self._new_tids = itertools.count(int(tracks.tid.max(initial=0)) + 1)
        self._begins: dict[str, list[str]] = {}
        library = native.load()
        self._native = None if library is None else NativeEvents(library)
        self._has_values = False

    @cached_property
    def _values(self) -> Array:
        return self._tracks.column("value")

    def write(self, out: WriteBehind) -> None:
        with out:
            self._write(out)

    def _write(self, out: WriteBehind) -> None:
        clock = self._trace.meta.clock
        about = {"producer": self._trace.meta.producer, "clock_error_p99_ns": clock.error_p99_ns}
        out.write(b'{"displayTimeUnit":"ns","otherData":%s,"traceEvents":[\n' % json.dumps(about).encode())
        names = list(self._processes())
        out.write(b"".join(_line(event) + b",\n" for event in (*names, *self._launches())))
        for part in self._tracks.parts():
            events = encoder(part.rows, None, None)
            self._has_values |= bool((part.rows.kind >= VALUE).any())
            for begin, end in part.chunks():
                lane_of, lanes = events.lanes(part.row_start[begin - part.begin : end - part.begin + 1])
                self._warps(out, part, (begin, end), lane_of, lanes)
        if self._has_values:  # without a value there is no barrier
            out.write(b"".join(_line(event) + b",\n" for event in self._arrows()))
        # The last name is repeated, so that every event before it can end in a comma.
        out.write((_line(names[-1]) if names else b"") + b"\n]}\n")

    def _processes(self) -> Iterator[dict[str, Any]]:
        for rank, (pid, name) in enumerate(self._tracks.processes):
            yield _meta("process_name", pid, None, name=name)
            yield _meta("process_sort_index", pid, None, sort_index=rank)

    def _launches(self) -> Iterator[dict[str, Any]]:
        for pid, launches in self._tracks.launches.items():
            tids: dict[int, int] = {}
            for entry, lane in zip(launches, stack_in_lanes([(e.begin, e.end) for e in launches]), strict=True):
                if lane not in tids:
                    tids[lane] = next(self._new_tids) if lane else pid
                    name = f"launches overlap {lane}" if lane else "launches"
                    yield _meta("thread_name", pid, tids[lane], name=name)
                    yield _meta("thread_sort_index", pid, tids[lane], sort_index=lane)
                times = {"ns": entry.begin, "dur_ns": entry.end - entry.begin}
                yield {
                    "ph": "X", "cat": "launch", "name": describe_launch(entry), "pid": pid, "tid": tids[lane],
                    "ts": entry.begin / 1000, "dur": (entry.end - entry.begin) / 1000,
                    "args": times | launch_facts(entry, self._trace.meta),
                }  # fmt: skip

    def _arrows(self) -> Iterator[dict[str, Any]]:
        """An arrow from each arrival to the end of the wait that it released, between two slices without length."""
        for arrow in barrier_arrows(self._trace, self._tracks):
            ends = (("s", arrow.source, arrow.name, arrow.leaves), ("f", arrow.target, RELEASED, arrow.arrives))
            for phase, track, name, time in ends:
                place = {"pid": int(self._tracks.pid[track]), "tid": int(self._tracks.tid[track]), "ts": time / 1000}
                yield {"ph": "X", "cat": BARRIER_CATEGORY, "name": name, **place, "dur": 0, "args": {"ns": time}}
                flow = {"ph": phase, "id": arrow.number, "cat": BARRIER_CATEGORY, "name": RELEASED, **place}
                yield flow | ({"bp": "e"} if phase == "f" else {})

    def _warps(self, out: WriteBehind, part: TrackPart, chunk: tuple[int, int], lane_of: Array, lanes: Array) -> None:
        """Write the threads of some tracks, and all their rows."""
        tracks, (begin, end) = self._tracks, chunk
        low = int(tracks.row_start[begin]) - part.first
        first = np.concatenate(([0], np.cumsum(lanes, dtype=np.int64)))
        heads, threads = [], []
        for at, track in enumerate(range(begin, end)):
            for lane in range(int(lanes[at])):
                tid = next(self._new_tids) if lane else int(tracks.tid[track])
                pid = int(tracks.pid[track])
                name = tracks.names[track] + (f" overlap {lane}" if lane else "")
                threads.append(_meta("thread_name", pid, tid, name=name))
                threads.append(_meta("thread_sort_index", pid, tid, sort_index=tid))
                heads.append(f',"pid":{pid},"tid":{tid},"ts":')
        out.write(b"".join(_line(event) + b",\n" for event in threads))
        of_track = np.diff(tracks.row_start[begin : end + 1])
        for kind, events in ((SPAN, self._spans), (INSTANT, self._instants), (VALUE, self._counters)):
            here = np.flatnonzero(part.rows.kind[low : low + len(lane_of)] == kind)
            if not len(here):
                continue
            if self._native is not None and kind != VALUE:
                texts = self._named(_PREFIXES[kind]), heads, self._tails(begin, end)
                out.write(self._native.of(kind, part, chunk, lane_of, first, texts))
                continue
            line = np.repeat(first[:-1], of_track) + lane_of
            head = pa.array(heads, pa.large_string()).take(pa.array(line[here]))
            out.write(_bytes(events(part, head, low + here)))

    def _spans(self, part: TrackPart, head: pa.Array, row: Array) -> pa.Array:
        start, duration = part.rows.start[row], part.rows.duration[row]
        texts = [head, *_micros(start), ',"dur":', *_micros(duration), ',"args":{"ns":', start, ',"dur_ns":', duration]
        names, tail = self._names(_PREFIXES[SPAN], part, row), self._tail(part, row)
        return _join(names, *texts, ',"cycles":', part.cycles[row], tail)

    def _instants(self, part: TrackPart, head: pa.Array, row: Array) -> pa.Array:
        start = part.rows.start[row]
        prefix = self._names(_PREFIXES[INSTANT], part, row)
        return _join(prefix, head, *_micros(start), ',"args":{"ns":', start, self._tail(part, row))

    def _counters(self, part: TrackPart, head: pa.Array, row: Array) -> pa.Array:
        """Counters belong to a process, so they carry the track's name. NaN and infinity become instants."""
        start, value = part.rows.start[row], self._values[part.first + row]
        track = np.searchsorted(self._tracks.row_start, part.first + row, side="right") - 1
        low, high = int(track[0]), int(track[-1]) + 1
        prefixes = [f'{{"ph":"C","name":{_text(name)}' for name in self._tracks.names[low:high]]
        prefix = pa.array(prefixes, pa.large_string()).take(pa.array(track - low))
        finite = np.isfinite(value)
        texts = pa.array([_decimal(number) for number in value[finite].tolist()], pa.large_string())
        counters = [prefix.filter(pa.array(finite)), head.filter(pa.array(finite)), *_micros(start[finite])]
        shown = _join(*counters, ',"args":{', self._names("", part, row[finite]), ":", texts, "}},\n")
        if finite.all():
            return shown
        odd = row[~finite]
        quoted = pa.array([f'"{number}"' for number in value[~finite].tolist()], pa.large_string())
        points = [self._names(_PREFIXES[INSTANT], part, odd), head.filter(pa.array(~finite)), *_micros(start[~finite])]
        return pa.concat_arrays(
            [shown, _join(*points, ',"args":{"value":', quoted, ',"ns":', start[~finite], self._tail(part, odd))]
        )

    def _named(self, prefix: str) -> list[str]:
        if prefix not in self._begins:
            self._begins[prefix] = [prefix + _text(name) for name in self._tracks.regions]
        return self._begins[prefix]

    def _names(self, prefix: str, part: TrackPart, row: Array) -> pa.Array:
        texts = pa.array(self._named(prefix), pa.large_string())
        return texts.take(pa.array(part.rows.region[row]))

    def _tail(self, part: TrackPart, row: Array) -> pa.Array:
        """The end of each event, which identifies its track."""
        track = np.searchsorted(self._tracks.row_start, part.first + row, side="right") - 1
        low, high = int(track[0]), int(track[-1]) + 1
        return pa.array(self._tails(low, high), pa.large_string()).take(pa.array(track - low))

    def _tails(self, begin: int, end: int) -> list[str]:
        columns = (self._tracks.identity[name][begin:end].tolist() for name in ("block", "warp", "launch"))
        return [
            f',"block":{block},"warp":{warp},"launch":{launch}}}}},\n'
            for block, warp, launch in zip(*columns, strict=True)
        ]


def _meta(what: str, pid: int, tid: int | None, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, **({} if tid is None else {"tid": tid}), "args": args}


def _text(name: str) -> str:
    """A JSON string in UTF-8: trace_processor does not decode escapes in names without quotes."""
    return json.dumps(name, ensure_ascii=False)


def _decimal(value: float) -> str:
    """Format small numbers with an exponent, since trace_processor misreads more than 18 decimals."""
    return repr(value) if value == 0 or abs(value) >= 1 else f"{value:.16e}"


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _micros(ns: Array) -> tuple[Array, pa.Array]:
    """Whole microseconds, and three decimals."""
    return ns // 1000, _fractions().take(pa.array(ns % 1000))


@cache
def _fractions() -> pa.Array:
    """Three decimals of each number; made when needed, as it makes pyarrow import pandas."""
    return pa.array([f".{ns:03d}" for ns in range(1000)], pa.large_string())


def _join(*parts: pa.Array | Array | str) -> pa.Array:
    """Concatenate texts and numbers row by row."""
    import pyarrow.compute as pc

    texts = [
        pc.cast(pa.array(part), pa.large_string()) if isinstance(part, np.ndarray) else
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else part
        for part in parts
    ]  # fmt: skip
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))


def _bytes(texts: pa.Array) -> memoryview:
    """All texts concatenated, which is how Arrow stores them."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * 8)
    return memoryview(texts.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
