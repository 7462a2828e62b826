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
    steps: Program
    pending: float = 0.0
    step: tuple[str, Step] | None = None
    began: float = 0.0
    span: tuple[str, float, float] | None = None
    """The instance that may go on: its region, begin and end."""


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
        self.spans: list[Span] = []
        self.end = 0.0

    def run(self) -> float:
        room = [(0.0, slot, sm) for slot in range(self.kernel.slots) for sm in range(self.device.sms)]
        heapq.heapify(room)
        self.room, self.next = room, 0
        while self.room and self.next < self.kernel.blocks:
            self._start_block()
        while self.heap:
            at, _, warp = heapq.heappop(self.heap)
            self._advance(at, warp)
        return self.end

    def _start_block(self) -> None:
        at, _, sm = heapq.heappop(self.room)
        block = self.next
        self.next += 1
        self.left[block] = self.kernel.warps
        if self.kernel.stages:
            self.counts[block, "free"] = [at] * self.kernel.stages
        for warp in range(self.kernel.warps):
            heapq.heappush(
                self.heap, (at + 300, next(self.order), _Warp(block, warp, sm, self.kernel.program(block, warp)))
            )

    def _advance(self, at: float, warp: _Warp) -> None:
        """The warp has finished its step at this time: note it, and start the next."""
        if warp.step is not None:
            self._note(warp.step[0], warp, warp.began, at)
        warp.step = next(warp.steps, None)
        if warp.step is None:
            self._close(warp)
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
            self._note(step.wait, warp, at, begin)
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

    def _note(self, region: str, warp: _Warp, begin: float, end: float) -> None:
        """Steps of one region that follow one another are one instance of it."""
        if warp.span and warp.span[0] == region:
            warp.span = (region, warp.span[1], end)
            return
        self._close(warp)
        warp.span = (region, begin, end)

    def _close(self, warp: _Warp) -> None:
        if warp.span:
            region, first, last = warp.span[0], round(warp.span[1]), round(warp.span[2])
            if last > first:
                self.spans.append(Span(region, first, last - first, warp.block, warp.warp, sm=warp.sm))


def run_modelled(kernel: Modelled, device: Device) -> tuple[Trace, float]:
    """The trace of one launch, and how long it took in ns."""
    run = _Run(kernel, device)
    took = run.run()
    spans = sorted(run.spans, key=lambda one: (one.block, one.warp, one.start, -one.dur))
    made = make_trace(spans, grid=(kernel.blocks, 1, 1))
    about = {"name": device.name, "capability": device.capability, "sm_count": device.sms, "clock_mhz": 2000.0}
    extra = {"registers": 32, "local_bytes": 0, "shared_bytes": 0, VARIANT_LAUNCHES: 1, **kernel.extra}
    if kernel.code:
        extra[CODE] = kernel.code
    (info,) = made.meta.launches
    info = replace(info, extra=extra, block=(32 * kernel.warps, 1, 1), begin_ns=0, end_ns=round(took))
    return Trace(made.spans, replace(made.meta, launches=(info,), devices={"0": about})), took
