"""A small timing model of a GPU that makes traces of kernels with a known cause of lost time.

It knows nothing of the findings. An SM has four schedulers that issue one instruction of a warp per cycle, and a pipe
of shared memory; its part of the memory's bandwidth is served in the order of requests, and a request takes a latency
beside that. A warp goes on when its instructions are done, one after the other, so roofs, Little's law and occupancy
follow. Blocks start on the SM that has room first. The gain of a repair is what the model says the repaired kernel
takes less.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.support.builders import Span, make_trace
from warplens.record.capture import CODE, VARIANT_LAUNCHES
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE

CYCLES_PER_NS = 2
_DEPENDENT = 4
"""Cycles until the result of an instruction can be used."""


@dataclass(frozen=True)
class Device:
    name: str
    capability: str
    sms: int
    bandwidth: float
    """GB/s, of which 90 % can be reached."""
    latency_ns: float = 550


DEVICES = (Device("NVIDIA A30", "8.0", 56, 933), Device("Tesla T4", "7.5", 40, 320, 600))


@dataclass(frozen=True)
class Work:
    """Instructions of a warp on its scheduler; `parallel` of them do not depend on one another."""

    instructions: float
    parallel: float = 2


@dataclass(frozen=True)
class Move:
    """Bytes between the warp and the memory, all requested at once; `waits` says that it waits until they are there."""

    bytes: float
    waits: bool = True


@dataclass(frozen=True)
class Arrive:
    """Wait until what was moved before is there."""


@dataclass(frozen=True)
class Shared:
    """Cycles of the SM's shared memory."""

    cycles: float


@dataclass(frozen=True)
class Barrier:
    """Wait for all warps of the block."""


@dataclass(frozen=True)
class Alone:
    """One warp of the device at a time, for so many ns; the others wait in front, in a region of their own."""

    ns: float
    wait: str


@dataclass(frozen=True)
class Queue:
    """Atomics on one address of the device: each takes its turn for so many ns."""

    ns: float


@dataclass(frozen=True)
class Put:
    """Tell the other role that a stage is full or free again, after so many bytes have arrived."""

    what: str
    bytes: float = 0


@dataclass(frozen=True)
class Get:
    """Wait until a stage is full or free."""

    what: str


Step = Work | Move | Arrive | Shared | Barrier | Alone | Queue | Put | Get
Program = Iterator[tuple[str, Step]]
Notes = list[tuple[str, float, float]]


@dataclass(frozen=True)
class Modelled:
    """A kernel: what each warp of each block runs, region by region, and what the weaver would count in its code."""

    program: Callable[[int, int], Program]
    blocks: int
    warps: int
    slots: int
    code: dict[str, dict[str, float]]
    stages: int = 0
    extra: dict[str, object] = field(default_factory=dict)


@dataclass
class _Warp:
    block: int
    warp: int
    sm: int
    started: float
    steps: Program
    pending: float = 0.0
    step: tuple[str, Step] | None = None
    began: float = 0.0
    notes: Notes = field(default_factory=list)


@dataclass(frozen=True)
class TrackNotes:
    """What a warp did from `begin` to `end`: each step's region, begin and end, in ns."""

    block: int
    warp: int
    sm: int
    begin: float
    end: float
    steps: Notes


@dataclass(frozen=True)
class Ran:
    """One launch, whatever is marked in it."""

    tracks: list[TrackNotes]
    took: float


class _Run:
    def __init__(self, kernel: Modelled, device: Device) -> None:
        self.kernel, self.device = kernel, device
        # Where few SMs have blocks, each gets more of the memory's bandwidth, up to three times its part.
        self.rate = 0.9 * device.bandwidth / max(min(kernel.blocks, device.sms), device.sms / 3)
        self.memory = [0.0] * device.sms
        self.pipe = [0.0] * device.sms
        self.issue = [[0.0] * 4 for _ in range(device.sms)]
        self.alone = self.queue = 0.0
        self.heap: list[tuple[float, int, _Warp]] = []
        self.order = itertools.count()
        self.left: dict[int, int] = {}
        self.waiting: dict[int, list[_Warp]] = {}
        self.counts: dict[tuple[int, str], list[float]] = {}
        self.blocked: dict[tuple[int, str], list[_Warp]] = {}
        self.tracks: list[TrackNotes] = []
        self.end = 0.0

    def run(self) -> Ran:
        room = [(0.0, slot, sm) for slot in range(self.kernel.slots) for sm in range(self.device.sms)]
        heapq.heapify(room)
        self.room, self.next = room, 0
        while self.room and self.next < self.kernel.blocks:
            self._start_block()
        while self.heap:
            at, _, warp = heapq.heappop(self.heap)
            self._advance(at, warp)
        return Ran(self.tracks, self.end)

    def _start_block(self) -> None:
        at, _, sm = heapq.heappop(self.room)
        block = self.next
        self.next += 1
        self.left[block] = self.kernel.warps
        if self.kernel.stages:
            self.counts[block, "free"] = [at] * self.kernel.stages
        for warp in range(self.kernel.warps):
            made = _Warp(block, warp, sm, at + 300, self.kernel.program(block, warp))
            heapq.heappush(self.heap, (at + 300, next(self.order), made))

    def _advance(self, at: float, warp: _Warp) -> None:
        """The warp has finished its step at this time: note it, and start the next."""
        if warp.step is not None:
            warp.notes.append((warp.step[0], warp.began, at))
        warp.step = next(warp.steps, None)
        if warp.step is None:
            self.tracks.append(TrackNotes(warp.block, warp.warp, warp.sm, warp.started, at, warp.notes))
            self.left[warp.block] -= 1
            if not self.left[warp.block]:
                self.end = max(self.end, at)
                heapq.heappush(self.room, (at + 400, 0, warp.sm))
                if self.next < self.kernel.blocks:
                    self._start_block()
            return
        warp.began = at
        done = self._until(at, warp, warp.step[1])
        if done is not None:
            heapq.heappush(self.heap, (done, next(self.order), warp))

    def _until(self, at: float, warp: _Warp, step: Step) -> float | None:
        sm = warp.sm
        if isinstance(step, Work):
            issue, place = self.issue[sm], (warp.warp + warp.block) % 4
            issue[place] = max(issue[place], at) + step.instructions / CYCLES_PER_NS
            return max(issue[place], at + step.instructions * _DEPENDENT / step.parallel / CYCLES_PER_NS)
        if isinstance(step, Move):
            warp.pending = max(warp.pending, self._moved(at, sm, step.bytes))
            return warp.pending if step.waits else at + 20
        if isinstance(step, Arrive):
            return max(at, warp.pending)
        if isinstance(step, Shared):
            self.pipe[sm] = max(self.pipe[sm], at) + step.cycles / CYCLES_PER_NS
            return self.pipe[sm] + 15
        if isinstance(step, Queue):
            self.queue = max(self.queue, at) + step.ns
            return self.queue + 300
        if isinstance(step, Alone):
            begin = max(self.alone, at)
            self.alone = begin + step.ns
            warp.notes.append((step.wait, at, begin))
            warp.began = begin
            return self.alone
        if isinstance(step, Barrier):
            here = self.waiting.setdefault(warp.block, [])
            here.append(warp)
            if len(here) < self.kernel.warps:
                return None
            del self.waiting[warp.block]
            for one in here:
                heapq.heappush(self.heap, (at + 15, next(self.order), one))
            return None
        if isinstance(step, Put):
            key = (warp.block, step.what)
            ready = self._moved(at, sm, step.bytes) if step.bytes else at
            blocked = self.blocked.get(key)
            if blocked:
                heapq.heappush(self.heap, (max(ready, at) + 10, next(self.order), blocked.pop(0)))
            else:
                self.counts.setdefault(key, []).append(ready)
            return at + 25
        key = (warp.block, step.what)
        if self.counts.get(key):
            return max(self.counts[key].pop(0), at) + 10
        self.blocked.setdefault(key, []).append(warp)
        return None

    def _moved(self, at: float, sm: int, moved: float) -> float:
        self.memory[sm] = max(self.memory[sm], at) + moved / self.rate
        return self.memory[sm] + self.device.latency_ns


def run_model(kernel: Modelled, device: Device) -> Ran:
    """What each warp of one launch did, and when."""
    return _Run(kernel, device).run()


def _spans(track: TrackNotes) -> Iterator[Span]:
    """The regions of a warp. Steps of one region that follow one another are one instance of it; `a#1/b#7` is the
    region `b` in an instance of `a`, and no name is code outside all regions."""
    path: list[str] = []
    opened: list[float] = []
    until, recorded = track.begin, False
    for region, begin, end in [*track.steps, ("", track.end, track.end)]:
        now = region.split("/") if region else []
        kept = 0
        while kept < min(len(path), len(now)) and path[kept] == now[kept]:
            kept += 1
        for name, first in zip(path[kept:], opened[kept:], strict=True):
            if round(until) > round(first):
                recorded = True
                yield _span(track, name.split("#")[0], first, until)
        opened[kept:] = [begin] * (len(now) - kept)
        path, until = now, end
    if not recorded:  # the decoder makes a span of the life of a warp without records
        yield _span(track, LIFE, track.begin, track.end)


def _span(track: TrackNotes, region: str, begin: float, end: float) -> Span:
    first, last = round(begin), round(end)
    return Span(region, first, last - first, track.block, track.warp, sm=track.sm)


def recorded(kernel: Modelled, device: Device, ran: Ran) -> Trace:
    """The trace of a launch."""
    spans = [span for track in ran.tracks for span in _spans(track)]
    spans.sort(key=lambda one: (one.block, one.warp, one.start, -one.dur))
    made = make_trace(spans, grid=(kernel.blocks, 1, 1))
    about = {"name": device.name, "capability": device.capability, "sm_count": device.sms, "clock_mhz": 2000.0}
    extra = {"registers": 32, "local_bytes": 0, "shared_bytes": 0, VARIANT_LAUNCHES: 1, **kernel.extra}
    if kernel.code:
        extra[CODE] = kernel.code
    (info,) = made.meta.launches
    info = replace(info, extra=extra, block=(32 * kernel.warps, 1, 1), begin_ns=0, end_ns=round(ran.took))
    lived = round(sum(track.end - track.begin for track in ran.tracks))
    info = replace(info, busy_ns=lived, busy_cycles=CYCLES_PER_NS * lived)
    return Trace(made.spans, replace(made.meta, launches=(info,), devices={"0": about}))


def run_modelled(kernel: Modelled, device: Device) -> tuple[Trace, float]:
    """The trace of one launch, and how long it took in ns."""
    ran = run_model(kernel, device)
    return recorded(kernel, device, ran), ran.took
