"""Values as Perfetto counter tracks: one per warp and region with values, each on its own packet sequence."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from warplens.export import wire as w
from warplens.export.packets import name_id, sequence_packet, track_id, track_packet
from warplens.export.track_table import VALUE, TrackTable

Array = npt.NDArray[Any]
_MAX_EXACT_INTEGER = float(1 << 53)


def write_counters(tracks: TrackTable, ids: Array, out: BinaryIO, sequence: int) -> int:
    """Write all counters, the first on `sequence`, and return the next free sequence."""
    values = tracks.column("value")
    for begin, end in tracks.chunks():
        low, high = int(tracks.row_start[begin]), int(tracks.row_start[end])
        row = low + np.flatnonzero(tracks.rows.kind[low:high] == VALUE)
        if not len(row):
            continue
        track = np.searchsorted(tracks.row_start, row, side="right") - 1
        row = row[np.lexsort((row, tracks.rows.region[row], track))]
        track = np.searchsorted(tracks.row_start, row, side="right") - 1
        region = tracks.rows.region[row]
        head = np.concatenate(([True], (track[1:] != track[:-1]) | (region[1:] != region[:-1])))
        for at in np.flatnonzero(head).tolist():
            name = tracks.regions[region[at]]
            parent = int(ids[track[at]])
            uuid = int(track_id("counter", parent, name_id(name)))
            out.write(track_packet(uuid, w.number(5, parent), w.data(2, name), w.data(8, b"")))
            out.write(sequence_packet(sequence + int(head[: at + 1].sum()) - 1, uuid))
        line = sequence + np.cumsum(head) - 1
        out.write(_pack(line, tracks.rows.start[row], head, values[row]))
        sequence += int(head.sum())
    return sequence


def _pack(sequence: Array, time: Array, head: npt.NDArray[np.bool_], value: Array) -> bytes:
    delta = np.diff(time, prepend=0)
    delta[head] = time[head]
    delta, sequence = delta.astype(np.uint64), sequence.astype(np.uint64)
    integral = np.abs(value) < _MAX_EXACT_INTEGER
    integral[integral] = value[integral] == np.floor(value[integral])
    number = np.where(integral, value, 0).astype(np.int64).view(np.uint64)
    event_bytes = 4 + np.where(integral, w.sizes(number), 8)
    packer = w.MessagePacker(len(value))
    packer.event_head(sequence, delta, event_bytes)
    packer.constant(b"\x48\x04")
    packer.constant(b"\xf0\x01", integral)
    packer.varint(number, integral)
    packer.constant(b"\xe1\x02", ~integral)
    packer.raw(np.ascontiguousarray(value, np.float64).view(np.uint8).reshape(-1, 8), ~integral)
    return packer.tobytes()
