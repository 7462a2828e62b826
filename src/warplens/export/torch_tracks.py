"""The part of a merged Perfetto file that comes from the torch trace: threads, streams, memory and alignment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import count, groupby
from typing import Any, BinaryIO

from warplens.analyse.torch.alignment import Aligned
from warplens.analyse.torch.kineto import MemoryEvent, Slice, Thread
from warplens.export import wire as w
from warplens.export.packets import (
    BEGIN,
    COUNTER,
    END,
    annotation,
    name_id,
    packet,
    process_packet,
    track_id,
    track_packet,
)

_BYTES_UNIT = 3
_DEVICE_PIDS = 9_000
TO_KERNEL, TO_SM, TO_BACKWARD = (kind << 60 for kind in (1, 2, 3))
"""Offsets that make a number the id of a flow arrow of each kind."""
_HIDDEN_ARGUMENTS = frozenset(
    {"Ev Idx", "Record function id", "External id", "finished", "device", "stream", "context", "queued"}
)


class TorchWriter:
    """Writes packets on one sequence, with absolute times and interned names."""

    def __init__(self, aligned: Aligned, origin: int, sequence: int, pids: set[int], tids: set[int]) -> None:
        self._aligned, self._torch, self._origin, self._sequence = aligned, aligned.torch, origin, sequence
        self._tids = tids
        self._launch = {id(kernel): launch for launch, kernel in aligned.kernels.items()}
        cpu = {one.place[0] for one in self._torch.slices if not one.on_gpu}
        gpu = {one.place[0] for one in self._torch.slices if one.on_gpu}
        gpu |= {event.device for event in self._torch.memory if event.device >= 0}
        self._cpu = {pid: _reserve(pid, pids) for pid in sorted(cpu)}
        self._gpu = {device: _reserve(_DEVICE_PIDS + device, pids) for device in sorted(gpu)}

    @property
    def processes(self) -> int:
        return len(self._cpu) + len(self._gpu)

    def write(self, out: BinaryIO, inside: Mapping[int, Sequence[int]]) -> None:
        """Write all packets; `inside` has the flows to the SMs by the identity of a kernel's slice."""
        out.write(b"".join(self._descriptors()))
        out.write(packet(w.number(10, self._sequence), w.number(13, 1), w.data(12, self._interned())))
        self._flows = self._flow_ids(inside)
        by_place = sorted(self._torch.slices, key=lambda one: (one.on_gpu, one.place))
        for (on_gpu, place), slices in groupby(by_place, key=lambda one: (one.on_gpu, one.place)):
            out.write(b"".join(self._lines(on_gpu, place, list(slices))))
        out.write(b"".join(self._memory()))
        out.write(b"".join(self._alignments()))

    def _descriptors(self) -> Iterator[bytes]:
        threads = sorted({one.place for one in self._torch.slices if not one.on_gpu})
        for rank, (pid, number) in enumerate(self._cpu.items()):
            name = f"{self._torch.processes.get(pid, 'process')} (PyTorch)"
            yield process_packet(_cpu_id(pid), number, name, rank)
            for at, place in enumerate(place for place in threads if place[0] == pid):
                name = self._torch.threads.get(place, f"thread {place[1]}")
                thread = w.number(1, number) + w.number(2, _reserve(place[1], self._tids)) + w.data(5, name)
                fields = w.number(5, _cpu_id(pid)), w.data(4, thread), w.number(12, at)
                yield track_packet(_line_id(False, place), *fields)
        streams = sorted({one.place for one in self._torch.slices if one.on_gpu})
        for rank, (device, number) in enumerate(self._gpu.items(), len(self._cpu)):
            name = f"GPU {device} {self._torch.devices.get(device, '')}".strip()
            yield process_packet(_gpu_id(device), number, f"{name} (PyTorch)", rank)
            for at, place in enumerate(place for place in streams if place[0] == device):
                fields = w.number(5, _gpu_id(device)), w.data(2, f"stream {place[1]}"), w.number(12, at + 1)
                yield track_packet(_line_id(True, place), *fields)

    def _interned(self) -> bytes:
        names = dict.fromkeys(one.name for one in self._torch.slices)
        self._names = {name: iid for iid, name in enumerate(names, 1)}
        return b"".join(w.data(2, w.number(1, iid) + w.data(2, name)) for name, iid in self._names.items())

    def _flow_ids(self, inside: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """The flows that begin or end at each slice, by its identity."""
        flows = {kernel: list(ids) for kernel, ids in inside.items()}
        for number, one in enumerate(self._torch.slices):
            call = self._torch.calls.get(one.correlation) if one.on_gpu and one.correlation else None
            if call is not None:
                flow = TO_KERNEL + number
                flows.setdefault(id(call), []).append(flow)
                flows.setdefault(id(one), []).append(flow)
        begins = {(one.place, one.start): one for one in self._torch.slices if one.category == "cpu_op"}
        ends = {(end.flow, end.is_start): begins.get((end.place, end.time)) for end in self._torch.flows}
        for (flow, is_start), end in ends.items():
            if end is not None and ends.get((flow, not is_start)) is not None:
                flows.setdefault(id(end), []).append(TO_BACKWARD + flow)
        return flows

    def _lines(self, on_gpu: bool, place: Thread, slices: Sequence[Slice]) -> Iterator[bytes]:
        """The slices of a thread or stream; slices that overlap without nesting go to extra lanes."""
        uuid = _line_id(on_gpu, place)
        for lane, inside in enumerate(nested_lanes(slices)):
            line = uuid
            if lane:
                line = int(track_id("overlap", uuid, lane))
                yield track_packet(line, w.number(5, uuid), w.data(2, f"overlap {lane}"), w.number(12, lane))
            open_: list[Slice] = []
            for one in inside:
                yield from self._ends(open_, line, one.start)
                yield self._event(line, one.start, self._begin(one))
                open_.append(one)
            yield from self._ends(open_, line, None)

    def _ends(self, open_: list[Slice], line: int, until: int | None) -> Iterator[bytes]:
        while open_ and (until is None or open_[-1].end <= until):
            yield self._event(line, open_.pop().end, w.number(9, END))

    def _begin(self, one: Slice) -> bytes:
        facts = {name: value for name, value in one.args.items() if name not in _HIDDEN_ARGUMENTS}
        if id(one) in self._launch:
            facts["warplens_launch"] = self._launch[id(one)]
        flows = b"".join(w.fixed(47, flow) for flow in self._flows.get(id(one), ()))
        named = w.number(9, BEGIN) + w.number(10, self._names[one.name]) + w.data(22, one.category)
        return named + b"".join(annotation(name, _plain(value)) for name, value in facts.items()) + flows

    def _event(self, line: int, time: int, event: bytes) -> bytes:
        body = w.data(11, event + w.number(11, line))
        return packet(w.number(10, self._sequence), w.number(8, time - self._origin), body)

    def _memory(self) -> Iterator[bytes]:
        events = sorted(self._torch.memory, key=lambda event: event.device)
        for device, group in groupby(events, key=lambda event: event.device):
            changes = list(group)
            if device >= 0:
                yield from self._counter(_gpu_id(device), "allocated", ((e.time, e.allocated) for e in changes))
                yield from self._counter(_gpu_id(device), "reserved", ((e.time, e.reserved) for e in changes))
            elif self._cpu:
                yield from self._counter(_cpu_id(changes[0].place[0]), "allocated", _totals(changes))

    def _counter(self, parent: int, name: str, samples: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        uuid = int(track_id("torch memory", parent, name_id(name)))
        unit = w.data(8, w.number(3, _BYTES_UNIT))
        yield track_packet(uuid, w.number(5, parent), w.data(2, f"memory {name}"), unit)
        for time, value in samples:
            yield self._event(uuid, time, w.number(9, COUNTER) + w.number(30, value))

    def _alignments(self) -> Iterator[bytes]:
        """One slice per GPU over its recorded kernels, with the error of the regions below."""
        for one in self._aligned.alignments:
            kernels = list(one.kernels.values())
            device = kernels[0].place[0]
            uuid = int(track_id("alignment", device))
            fields = w.number(5, _gpu_id(device)), w.data(2, "warplens alignment"), w.number(12, 0)
            yield track_packet(uuid, *fields)
            facts = {name: value for name, value in one.to_json().items() if not isinstance(value, list)}
            facts |= {"unmatched": len(one.unmatched), "unix_ns_at_zero": self._origin}
            notes = b"".join(annotation(name, value) for name, value in facts.items())
            begin = w.number(9, BEGIN) + w.data(22, "alignment") + w.data(23, f"SM regions {one}") + notes
            yield self._event(uuid, min(kernel.start for kernel in kernels), begin)
            yield self._event(uuid, max(kernel.end for kernel in kernels), w.number(9, END))


def _reserve(number: int, used: set[int]) -> int:
    """Reserve the number, or the next one that is free."""
    found = next(one for one in count(number, 1 << 23) if one not in used)
    used.add(found)
    return found


def nested_lanes(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Assign slices, ordered by start with longer ones first, to lanes on which they nest."""
    lanes: list[list[Slice]] = []
    ends: list[list[int]] = []
    for one in slices:
        for open_ in ends:
            while open_ and open_[-1] <= one.start:
                open_.pop()
        lane = next((at for at, open_ in enumerate(ends) if not open_ or one.end <= open_[-1]), len(lanes))
        if lane == len(lanes):
            lanes.append([])
            ends.append([])
        lanes[lane].append(one)
        ends[lane].append(one.end)
    return lanes


def _totals(events: Sequence[MemoryEvent]) -> Iterator[tuple[int, int]]:
    """Allocated bytes over time; the CPU's allocator does not always report the total, so sizes are summed."""
    total = 0
    for event in events:
        total = event.allocated or total + event.size
        yield event.time, max(total, 0)


def _cpu_id(pid: int) -> int:
    return int(track_id("torch process", pid))


def _gpu_id(device: int) -> int:
    return int(track_id("torch device", device))


def _line_id(on_gpu: bool, place: Thread) -> int:
    return int(track_id("torch stream" if on_gpu else "torch thread", *place))


def _plain(value: Any) -> str | int | float:
    """Convert an argument to a type that annotations support."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    return value if isinstance(value, str) else json.dumps(value, default=str)
