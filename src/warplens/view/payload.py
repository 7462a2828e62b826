"""Encode spans for a report: columns as byte planes, compressed together to a few bytes per span.

`assets/codec.js` and `assets/trace.js` decode them. Integers are zigzag-coded and split into planes of their 1st, 2nd,
… bytes, because the high ones are nearly constant and compress well. Cycles are stored as steps along a track, and ns
as the difference from a constant clock rate, so that both are exact without storing them twice.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.roles import warp_roles
from warplens.analyse.timeline import lanes
from warplens.trace.barrier_rows import NO_RECORD
from warplens.trace.model import Trace
from warplens.trace.schema import kind_indices
from warplens.view.palette import colour, ink

Array = npt.NDArray[Any]
_LEVEL = 6


class ColumnPacker:
    """Collects columns. `text` holds them as base64 of one raw deflate stream; `manifest` says where each begins."""

    def __init__(self) -> None:
        self.manifest: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def ints(self, name: str, values: Array) -> None:
        signed = np.ascontiguousarray(values, np.int64)
        coded = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
        planes = max(1, (int(coded.max(initial=0)).bit_length() + 7) // 8)
        split = np.ascontiguousarray(coded.view(np.uint8).reshape(-1, 8)[:, :planes].T)
        self._add(name, split.tobytes(), kind="int", count=len(signed), planes=planes)

    def floats(self, name: str, values: Array) -> None:
        self._add(name, np.ascontiguousarray(values, "<f8").tobytes(), kind="float", count=len(values))

    def octets(self, name: str, values: Array) -> None:
        flat = np.ascontiguousarray(values, np.uint8).reshape(-1)
        self._add(name, flat.tobytes(), kind="byte", count=len(flat))

    def _add(self, name: str, data: bytes, **entry: Any) -> None:
        # The script reads floats in place, so every column is aligned to 8 bytes.
        padding = -len(data) % 8
        self.manifest[name] = entry | {"at": self._size}
        self._parts += [data, b"\0" * padding]
        self._size += len(data) + padding

    @property
    def text(self) -> str:
        squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
        packed = b"".join([*(squeeze.compress(part) for part in self._parts), squeeze.flush()])
        return base64.b64encode(packed).decode("ascii")


def region_entry(
    at: int, name: str, locations: Mapping[str, str], cautions: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What the timeline's script knows of a region, which has the colour of its place."""
    fill = colour(at)
    known = {"location": locations.get(name, ""), "caution": (cautions or {}).get(name, "")}
    return {"name": name, "colour": fill, "ink": ink(fill), **known}


def pack_spans(trace: Trace, packer: ColumnPacker, region_place: Array) -> None:
    """Pack every column that the timeline shows. `region_place` maps the trace's region codes to the report's."""
    track, cycle, ns = trace.numpy("track"), trace.numpy("start_cycle"), trace.numpy("start_ns")
    head = np.append(True, track[1:] != track[:-1]) if len(track) else np.empty(0, bool)
    first = np.flatnonzero(head)
    rate = _rates(trace, first, np.repeat(np.arange(len(first)), np.diff(np.append(first, len(track)))))
    _pack_tracks(trace, packer, first, rate)

    per_span = np.repeat(rate, np.diff(np.append(first, len(track))))
    step = np.diff(cycle, prepend=0)
    step[head] = 0
    drift = np.diff(ns, prepend=0) - _expected(step, per_span)
    drift[head] = 0
    cycles = trace.numpy("dur_cycles")
    parent, depth = trace.numpy("parent"), trace.numpy("depth")
    packer.ints("region", region_place[trace.codes("region")[0]] if len(trace) else np.empty(0))
    packer.ints("kind", kind_indices(*trace.codes("kind")))
    packer.ints("depth", depth)
    packer.ints("lane", _lanes(trace) - depth)
    packer.ints("parent", np.where(parent >= 0, np.arange(len(parent)) - parent, 0))
    packer.ints("cycle", step)
    packer.ints("cycles", cycles)
    packer.ints("ns", drift)
    packer.ints("dur", trace.numpy("dur_ns") - _expected(cycles, per_span))
    value = trace.numpy("value")
    packer.ints("value_rows", np.diff(np.flatnonzero(~np.isnan(value)), prepend=0))
    packer.floats("values", value[~np.isnan(value)])
    _pack_edges(trace, packer)
    packer.ints("open_rows", np.diff(np.flatnonzero(trace.numpy("open")), prepend=0))


def _lanes(trace: Trace) -> Array:
    """The line of each row below its warp; a barrier record is on the line of the span around it."""
    line = lanes(trace).astype(np.int64)
    inside = np.flatnonzero((trace.numpy("released_by") != NO_RECORD) & (trace.numpy("parent") >= 0))
    line[inside] = line[trace.numpy("parent")[inside]]
    return line


def _pack_edges(trace: Trace, packer: ColumnPacker) -> None:
    """Who released whom: the waiting span and the arrival's record of each edge, as steps; and all barrier records."""
    edges = trace.edges
    record = edges.column("arrival_record").to_numpy()
    known = record >= 0
    wait, waited = edges.column("wait").to_numpy()[known], edges.column("waited_ns").to_numpy()[known]
    packer.ints("edge.wait", np.diff(wait, prepend=0))
    packer.ints("edge.arrival", record[known].astype(np.int64) - wait)
    packer.octets("edge.waited", waited > 0)
    packer.ints("barrier_rows", np.diff(np.flatnonzero(trace.numpy("released_by") != NO_RECORD), prepend=0))


def _pack_tracks(trace: Trace, packer: ColumnPacker, first: Array, rate: Array) -> None:
    packer.ints("track.count", np.diff(np.append(first, len(trace))))
    for name in ("rank", "device", "launch", "sm", "block", "warp", "lane"):
        packer.ints(f"track.{name}", trace.numpy(name)[first])
    packer.ints("track.kernel", trace.codes("kernel")[0][first])
    packer.ints("track.role", warp_roles(Lifetimes.of(trace))[1])
    packer.ints("track.cycle", trace.numpy("start_cycle")[first])
    packer.ints("track.ns", trace.numpy("start_ns")[first])
    packer.floats("track.rate", rate)


def _rates(trace: Trace, first: Array, number: Array) -> npt.NDArray[np.float64]:
    """The ns per cycle of each track, which leaves only small differences to store."""
    cycles = np.bincount(number, trace.numpy("dur_cycles"), len(first))
    ns = np.bincount(number, trace.numpy("dur_ns"), len(first))
    overall = ns.sum() / cycles.sum() if cycles.sum() else 0.0
    return np.asarray(np.divide(ns, cycles, out=np.full(len(first), overall), where=cycles > 0))


def _expected(cycles: Array, rate: Array) -> Array:
    # floor(x + 0.5), not round(), which JavaScript repeats exactly.
    return np.floor(cycles * rate + 0.5).astype(np.int64)
