"""Perfetto's own format: TrackEvent packets, encoded directly, a few tracks at a time.

An SM is a process and a warp is a thread of it; a launch is a slice on the SM's own track. Each line of the timeline is
one packet sequence, whose defaults hold its track and whose clock counts from its previous event, so that a begin or an
end takes about a dozen bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from warplens.export import wire as w
from warplens.export.barrier_arrows import ARROWS, BARRIER_CATEGORY, RELEASED, barrier_arrows
from warplens.export.counters import write_counters
from warplens.export.descriptions import describe_launch, describe_track, launch_facts
from warplens.export.events import CYCLES_NAME, OPEN_NAME, encoder
from warplens.export.packets import (
    BEGIN,
    END,
    EXPLICIT,
    HEAD_SEQUENCE,
    annotation,
    packet,
    process_packet,
    sequence_packet,
    track_id,
    track_packet,
)
from warplens.export.track_table import SPAN, VALUE, LaunchOnSm, TrackTable, stack_in_lanes
from warplens.files import atomic_write
from warplens.trace.model import Trace

Array = npt.NDArray[Any]
ANNOTATE_LIMIT = 200_000
"""The number of spans up to which slices carry their cycles by default; they double the size of the file."""


def write(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.pftrace`."""
    writer = PerfettoWriter(trace, TrackTable(trace), annotate)
    with atomic_write(path, force=force) as out:
        writer.write(out)


class PerfettoWriter:
    """One export: descriptors and launches first, then the warps chunk by chunk, then the counters.

    In a merged file, the SMs come after `first_rank` other processes, and sequences start at `sequence`.
    """

    def __init__(
        self,
        trace: Trace,
        tracks: TrackTable,
        annotate: bool | None,
        *,
        first_rank: int = 0,
        sequence: int = HEAD_SEQUENCE + 1,
    ) -> None:
        self._trace, self._tracks = trace, tracks
        spans = int(np.count_nonzero(tracks.rows.kind == SPAN))
        self._annotate = spans <= ANNOTATE_LIMIT if annotate is None else annotate
        who = tracks.identity
        self.sm_ids = track_id("sm", who["rank"], who["device"], who["sm"])
        self.ids = track_id("warp", *(who[name] for name in ("rank", "device", "launch", "block", "warp", "lane")))
        self._has_values = bool((tracks.rows.kind == VALUE).any())
        self._first_rank, self._next = first_rank, sequence
        self._names: dict[bytes, bytes] = {}

    def write(self, out: BinaryIO) -> None:
        out.write(track_packet(0, w.number(19, EXPLICIT)))
        out.write(b"".join(self._processes()))
        out.write(b"".join(self._launches()))
        self._warps(out)
        if self._has_values:
            self._next = write_counters(self._tracks, self.ids, out, self._next)
        out.write(b"".join(self._arrows()))

    def _processes(self) -> Iterator[bytes]:
        firsts = np.unique(self._tracks.pid, return_index=True)[1].tolist()
        for rank, (at, (pid, name)) in enumerate(zip(firsts, self._tracks.processes, strict=True), self._first_rank):
            yield process_packet(int(self.sm_ids[at]), pid, name, rank)

    def _launches(self) -> Iterator[bytes]:
        tracks = self._tracks
        uuid_of = dict(zip(tracks.pid.tolist(), self.sm_ids.tolist(), strict=True))
        for pid, entries in tracks.launches.items():
            known: set[int] = {0}
            for entry, lane in zip(entries, stack_in_lanes([(e.begin, e.end) for e in entries]), strict=True):
                uuid = uuid_of[pid] if lane == 0 else int(track_id("overlap", uuid_of[pid], lane))
                if lane not in known:
                    yield track_packet(uuid, w.number(5, uuid_of[pid]), w.data(2, f"launches overlap {lane}"))
                    known.add(lane)
                yield from self._launch_slice(entry, uuid)

    def _launch_slice(self, entry: LaunchOnSm, uuid: int) -> Iterator[bytes]:
        facts = b"".join(annotation(*fact) for fact in launch_facts(entry, self._trace.meta).items())
        named = w.data(22, "launch") + w.data(23, describe_launch(entry))
        begin = w.number(9, BEGIN) + w.number(11, uuid) + named + facts + self.links(entry)
        end = w.number(9, END) + w.number(11, uuid)
        yield packet(w.number(10, HEAD_SEQUENCE), w.number(8, entry.begin), w.data(11, begin))
        yield packet(w.number(10, HEAD_SEQUENCE), w.number(8, entry.end), w.data(11, end))

    def links(self, entry: LaunchOnSm) -> bytes:
        """Additional fields of a launch's slice; a merged file links it to its kernel."""
        return b""

    def _arrows(self) -> Iterator[bytes]:
        """An arrow from each arrival to the end of the wait that it released, between two slices without length.

        They follow all other packets: of events at the same time, the tracks' own then come first.
        """
        arrows = barrier_arrows(self._trace, self._tracks)
        for arrow in arrows:
            ends = ((arrow.source, arrow.name, arrow.leaves, 47), (arrow.target, RELEASED, arrow.arrives, 48))
            for track, name, time, flow in ends:
                where = w.number(11, int(self.ids[track]))
                begin = w.number(9, BEGIN) + where + w.data(22, BARRIER_CATEGORY) + w.data(23, name)
                end = w.number(9, END) + where
                identity = w.fixed(flow, ARROWS + arrow.number)
                yield packet(w.number(10, HEAD_SEQUENCE), w.number(8, time), w.data(11, begin + identity))
                yield packet(w.number(10, HEAD_SEQUENCE), w.number(8, time), w.data(11, end))

    def _warps(self, out: BinaryIO) -> None:
        tracks = self._tracks
        cycles = is_open = None
        if self._annotate:
            cycles = np.ascontiguousarray(tracks.column("dur_cycles"), np.int64)
            is_open = np.ascontiguousarray(tracks.column("open")).view(np.uint8)
        events = encoder(tracks.rows, cycles, is_open)
        for begin, end in tracks.chunks():
            row_start = tracks.row_start[begin : end + 1]
            lane_of, lanes = events.lanes(row_start)
            first = np.concatenate(([0], np.cumsum(lanes, dtype=np.int64)))
            used = self._names_used(row_start, lane_of, first)
            for at, track in enumerate(range(begin, end)):
                out.write(b"".join(self._head(track, self._next + int(first[at]), used[first[at] : first[at + 1]])))
            events.write(out, row_start, self._next + first[:-1])
            self._next += int(first[-1])

    def _names_used(self, row_start: Array, lane_of: Array, first: Array) -> npt.NDArray[np.bool_]:
        """Which regions occur on each line; only their names are interned, which keeps short tracks small."""
        low, high = int(row_start[0]), int(row_start[-1])
        region, kind = self._tracks.rows.region[low:high], self._tracks.rows.kind[low:high]
        line = np.repeat(first[:-1], np.diff(row_start)) + lane_of
        used = np.zeros((int(first[-1]), len(self._tracks.regions)), bool)
        shown = kind < VALUE
        if not shown.all():
            line, region = line[shown], region[shown]
        used[line, region] = True
        return used

    def _head(self, track: int, sequence: int, used: npt.NDArray[np.bool_]) -> Iterator[bytes]:
        """The descriptors of a warp's lines, and the first packets of their sequences."""
        tracks, uuid = self._tracks, int(self.ids[track])
        name = tracks.names[track]
        thread = w.number(1, int(tracks.pid[track])) + w.number(2, int(tracks.tid[track])) + w.data(5, name)
        about = w.data(14, describe_track(tracks, track, self._trace.meta.clock))
        yield track_packet(
            uuid, w.number(5, int(self.sm_ids[track])), w.data(4, thread), w.number(12, int(tracks.tid[track])), about
        )
        yield sequence_packet(sequence, uuid, self._interned(used[0]))
        for lane in range(1, len(used)):
            beside = int(track_id("overlap", uuid, lane))
            yield track_packet(beside, w.number(5, uuid), w.data(2, f"{name} overlap {lane}"), w.number(12, lane))
            yield sequence_packet(sequence + lane, beside, self._interned(used[lane]))

    def _interned(self, used: npt.NDArray[np.bool_]) -> bytes:
        key = used.tobytes()
        if key not in self._names:
            names = [(2, code + 1, self._tracks.regions[code]) for code in np.flatnonzero(used).tolist()]
            if self._annotate:
                names += [(3, CYCLES_NAME, "cycles"), (3, OPEN_NAME, "open")]
            self._names[key] = b"".join(w.data(what, w.number(1, iid) + w.data(2, name)) for what, iid, name in names)
        return self._names[key]
