"""Other writers of the same timeline: a begin and an end for each span, on the same tracks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.synthetic_capture import make_capture
from warplens.decode import decode

Span = tuple[int, str, int, int]


def peers(folder: Path, spans: int) -> dict[str, Any]:
    """Spans per second of each peer that is installed, or why it is not measured; bytes per span beside it."""
    trace = decode(make_capture(spans))
    region, names = trace.codes("region")
    rows = list(
        zip(
            trace.numpy("track").tolist(),
            [names[code] for code in region],
            trace.numpy("start_ns").tolist(),
            trace.numpy("dur_ns").tolist(),
            strict=True,
        )
    )
    writers: dict[str, Callable[[list[Span], Path], None]] = {
        "tg4perfetto": _tg4perfetto,
        "perfetto protobuf objects": _protobuf,
        "json module, Chrome format": _json,
    }
    return {name: _measure(writer, rows, folder / f"peer{i}") for i, (name, writer) in enumerate(writers.items())}


def _measure(writer: Callable[[list[Span], Path], None], rows: list[Span], path: Path) -> dict[str, Any]:
    try:
        start = time.perf_counter()
        writer(rows, path)
        seconds = time.perf_counter() - start
    except ImportError as error:
        return {"skipped": str(error)}
    return {"spans": len(rows), "spans_per_s": len(rows) / seconds, "bytes_per_span": path.stat().st_size / len(rows)}


def _tg4perfetto(rows: list[Span], path: Path) -> None:
    from tg4perfetto import TraceGenerator

    generator = TraceGenerator(str(path))
    group = generator.create_group("gpu")
    tracks: dict[int, Any] = {}
    for track, name, start, duration in rows:
        if track not in tracks:
            tracks[track] = group.create_track()
        tracks[track].open(start, name)
        tracks[track].close(start + duration)
    generator.flush()


def _protobuf(rows: list[Span], path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    for track, name, start, duration in rows:
        begin = trace.packet.add()
        begin.timestamp, begin.trusted_packet_sequence_id = start, 1
        begin.track_event.type, begin.track_event.track_uuid, begin.track_event.name = (
            TrackEvent.TYPE_SLICE_BEGIN,
            track + 1,
            name,
        )
        end = trace.packet.add()
        end.timestamp, end.trusted_packet_sequence_id = start + duration, 1
        end.track_event.type, end.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, track + 1
    path.write_bytes(trace.SerializeToString())


def _json(rows: list[Span], path: Path) -> None:
    events = [
        {"ph": "X", "pid": 0, "tid": track, "name": name, "ts": start / 1000, "dur": duration / 1000}
        for track, name, start, duration in rows
    ]
    path.write_text(json.dumps({"traceEvents": events}))
