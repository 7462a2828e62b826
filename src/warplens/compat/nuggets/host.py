"""The host side: allocate and decode the buffer, and convert it to traces.

The buffer is an int64 tensor: `buf[0]` counts all events, including those that did not fit, and event `i` is
`buf[1 + 4*i:] = start_ns, dur_ns, tag, tid`.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.decode import decode
from warplens.errors import UsageError, WarplensError, check_name
from warplens.export import chosen_format
from warplens.files import atomic_write
from warplens.record.capture import Capture, Launch
from warplens.record.layout import MAX_TAG, Kind, track_stride
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace

WORDS = 4
"""int64 words per event."""
_MAX_RECORD_SLOTS = 3
"""Maximum number of slots per record."""


class TagTable:
    """The names of tags; the id of a tag is its index."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"TagTable({self.names}): names must be unique")

    def id(self, name: str) -> int:
        """Return the id to pass to a kernel."""
        check_name(f"unknown tag {name!r}", name, self.names)
        return self.names.index(name)

    def name(self, tag_id: int) -> str:
        """Return the name of a tag; `unknown_7` for an id that is not in the table."""
        return self.names[tag_id] if 0 <= tag_id < len(self.names) else f"unknown_{tag_id}"

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Event:
    """One decoded event."""

    start_ns: int
    dur_ns: int
    tag_id: int
    tag_name: str
    tid: int


@dataclass
class ProfileBuf:
    """A buffer from `allocate_profile_buffer`."""

    tensor: Any
    max_events: int

    def to_cute(self) -> Any:
        """Return the buffer as a kernel argument."""
        from cutlass.cute.runtime import from_dlpack

        return from_dlpack(self.tensor)

    def reset(self) -> None:
        """Clear the buffer; call it between launches whose events should not accumulate."""
        self.tensor.zero_()


def allocate_profile_buffer(max_events: int, device: Any = "cuda", stream: Any = None) -> ProfileBuf:
    """Allocate a cleared buffer for `max_events` events."""
    if max_events < 1:
        raise UsageError(f"max_events={max_events}: must be at least 1")
    try:
        import torch
    except ImportError:
        raise WarplensError("the profile buffer is a torch tensor: pip install torch") from None
    size = 1 + WORDS * max_events
    if stream is None:
        return ProfileBuf(torch.zeros(size, dtype=torch.int64, device=device), max_events)
    with torch.cuda.stream(stream):
        return ProfileBuf(torch.zeros(size, dtype=torch.int64, device=device), max_events)


def decode_events(buf: Any, tag_table: TagTable, tid_base: int = 0) -> tuple[list[Event], bool]:
    """Decode the events of a buffer (a ProfileBuf, tensor or array); return them and whether some did not fit."""
    words = _words(buf)
    count, capacity = int(words[0]), (len(words) - 1) // WORDS
    if isinstance(buf, ProfileBuf):
        capacity = min(capacity, buf.max_events)
    if count < 0:
        raise WarplensError(
            f"the profile buffer has an invalid event count, {count}; check that it was not overwritten"
        )
    rows = words[1 : 1 + WORDS * min(count, capacity)].reshape(-1, WORDS).tolist()
    events = [Event(start, dur, tag, tag_table.name(tag), tid + tid_base) for start, dur, tag, tid in rows]
    return events, count > capacity


def events_to_perfetto(
    events: Sequence[Event], path: str | os.PathLike[str], pid: int = 0, tid_prefix: int | None = None
) -> Path:
    """Write events as Chrome trace JSON (`.json`, `.json.gz`), or in any other format of `Trace.export`."""
    suffix = chosen_format(path).suffix
    if suffix not in (".json", ".json.gz"):
        return to_trace(events).export(path, force=True)
    first = min((event.start_ns for event in events), default=0)
    offset = tid_prefix or 0
    rows: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"GPU {pid}"}}]
    for tid in sorted({event.tid for event in events}):
        name = {"name": f"tid {tid}"}
        rows.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": offset + tid, "args": name})
    rows += [
        {
            "name": event.tag_name, "cat": "profile", "ph": "X", "pid": pid, "tid": offset + event.tid,
            "ts": (event.start_ns - first) / 1000, "dur": event.dur_ns / 1000,
            "args": {"tag_id": event.tag_id, "start_ns": event.start_ns, "dur_ns": event.dur_ns},
        }
        for event in events
    ]  # fmt: skip
    text = json.dumps({"traceEvents": rows}).encode()
    with atomic_write(path) as out:
        out.write(gzip.compress(text) if suffix == ".json.gz" else text)
    return Path(path)


def to_trace(events: Sequence[Event]) -> Trace:
    """Convert events to a warplens trace: one block per tid, with the times of the GPU's nanosecond timer."""
    if not events:
        raise WarplensError("no events; no kernel wrote to the profile buffer")
    tags = sorted({event.tag_id for event in events})
    names = {event.tag_id: event.tag_name for event in events}
    region = {tag: number + 1 for number, tag in enumerate(tags)}
    of_tid: dict[int, list[Event]] = {}
    for event in events:
        of_tid.setdefault(event.tid, []).append(event)
    tids = sorted(of_tid)
    tracks = [_track(block, of_tid[tid], region) for block, tid in enumerate(tids)]
    capacity = _MAX_RECORD_SLOTS * max(len(rows) for _, rows in tracks)
    raw = np.empty((len(tracks), track_stride(capacity)), np.uint8)
    for row, (block, records) in zip(raw, tracks, strict=True):
        # 64-bit clocks: launches may be further apart than 32 bits of nanoseconds.
        writer = TrackWriter(capacity, block=block, wide=True)
        writer.start(records[0][0], records[0][0])
        for clock, kind, number, tag in records:
            writer.record(kind, number, clock, tag)
        writer.exit(records[-1][0], records[-1][0])
        row[:] = writer.to_bytes()
    launch = Launch(
        kernel="kernel",
        grid=(len(tids), 1, 1),
        block=(1, 1, 1),
        regions={region[tag]: names[tag] for tag in tags},
        capacity=capacity,
        raw=raw.reshape(-1),
        clock="cpu",
        extra={"tids": tids},
    )
    return decode(Capture([launch]))


def _track(block: int, events: list[Event], region: dict[int, int]) -> tuple[int, list[tuple[int, Kind, int, int]]]:
    """Return begins and ends in time order: regions for nested events, async spans for overlapping ones."""
    events = sorted(events, key=lambda event: (event.start_ns, -event.dur_ns))
    records: list[tuple[int, int, int, Kind, int, int]] = []
    ends: list[int] = []
    in_flight: dict[int, int] = {}
    for order, event in enumerate(events):
        start, end, number = event.start_ns, event.start_ns + max(event.dur_ns, 0), region[event.tag_id]
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            depth = len(ends)
            ends.append(end)
            kinds, tag = (Kind.BEGIN, Kind.END), 0
        else:
            in_flight = {tag: until for tag, until in in_flight.items() if until > start}
            tag = next(free for free in range(len(in_flight) + 1) if free not in in_flight)
            depth, kinds = 0, (Kind.ASYNC_BEGIN, Kind.ASYNC_END)
            in_flight[tag] = end
            tag &= MAX_TAG
        # At equal times ends come first, innermost first; but an empty event begins before it ends.
        records.append((start, 1, order, kinds[0], number, tag))
        records.append((end, 0 if end > start else 2, -depth, kinds[1], number, tag))
    records.sort(key=lambda record: record[:3])
    return block, [(clock, kind, number, tag) for clock, _, _, kind, number, tag in records]


@contextmanager
def profile_session(
    max_events: int,
    tag_names: Sequence[str],
    trace_path: str | os.PathLike[str] | None = None,
    device: Any = "cuda",
    stream: Any = None,
    pid: int = 0,
) -> Iterator[tuple[ProfileBuf, TagTable]]:
    """Provide a buffer and its tags for a `with` block, and write the events to `trace_path` when it ends."""
    prof, tags = allocate_profile_buffer(max_events, device, stream), TagTable(tag_names)
    yield prof, tags
    import torch

    if stream is not None:
        stream.synchronize()
    else:
        torch.cuda.synchronize()
    events, overflow = decode_events(prof, tags)
    if overflow:
        count = int(_words(prof)[0])
        print(
            f"nuggets: {count - len(events)} events were lost; use max_events={count} to keep all of them",
            file=sys.stderr,
        )
    if trace_path is not None:
        events_to_perfetto(events, trace_path, pid=pid)


def _words(buf: Any) -> npt.NDArray[np.int64]:
    tensor = buf.tensor if isinstance(buf, ProfileBuf) else buf
    array = np.asarray(tensor.cpu().numpy() if hasattr(tensor, "cpu") else tensor)
    if array.dtype.kind not in "iu" or array.itemsize != 8 or array.ndim != 1 or len(array) < 1:
        raise UsageError(
            f"the profile buffer is {array.dtype} of shape {array.shape}; expected the one-dimensional int64 tensor "
            "of allocate_profile_buffer"
        )
    return array.astype(np.int64, copy=False)
