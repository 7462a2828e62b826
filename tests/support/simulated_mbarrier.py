"""Warps that arrive at and wait on exact models of mbarriers, the records they leave, and who released whom.

Warps are generators of steps; the cycle at which each step takes effect decides the order. A phase of a barrier
completes when its arrivals and the bytes of its copies have all come. The record of an arrival is made a few cycles
before it takes effect, and that of a wait's end a few cycles after the warp went on, as on a GPU.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter

Step = tuple[str, int, int]
"""(what, barrier, number): work cycles; arrive; copy that takes so many cycles; wait for a parity."""
REGIONS = {1: "arrive", 2: "copy issue", 3: "wait"}
BEFORE, WAKE = 6, 24
"""The most cycles from an arrival's record to its effect, and from a release to the record of the wait's end."""


@dataclass
class SimulatedMbarrier:
    """One mbarrier: the arrivals and copies that its current phase still needs."""

    count: int
    phase: int = 0
    pending: int = field(init=False)
    flying: int = 0
    completed_by: dict[int, object] = field(default_factory=dict)
    waiters: list[tuple[int, int]] = field(default_factory=list)
    """The warp and the parity of each wait."""

    def __post_init__(self) -> None:
        self.pending = self.count

    def is_complete(self, parity: int) -> bool:
        """What try_wait.parity answers: whether the phase of this parity is not the current one."""
        return self.phase % 2 != parity

    def change(self, arrivals: int, copies: int, source: object) -> bool:
        """Take an arrival, an issue (+1) or an end (-1) of a copy; whether that completed the phase."""
        self.pending -= arrivals
        self.flying += copies
        assert min(self.pending, self.flying) >= 0, "the program arrived more often than the barrier counts"
        if self.pending or self.flying:
            return False
        self.completed_by[self.phase] = source
        self.phase += 1
        self.pending = self.count
        return True


@dataclass(frozen=True)
class TrueWait:
    """A wait of a warp (its number on that warp): whether it blocked, and the (warp, number) of what released it."""

    warp: int
    number: int
    blocked: bool
    source: tuple[int, int] | None
    by_copy: bool
    completed: int
    phase: int
    """The number of the phase that it waited for."""


class BarrierWorld:
    """Runs warps until all have ended, and keeps their records and the truth."""

    def __init__(self, counts: list[int], seed: int = 0, address: int = 0x400) -> None:
        self.barriers = [SimulatedMbarrier(count) for count in counts]
        self.random = random.Random(seed)
        self.address = address
        self.waits: list[TrueWait] = []
        self.phase_of: dict[tuple[int, int], int] = {}
        """The phase that each arrival (warp, number) counted for."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self.now = 1000
        self.writers: list[TrackWriter] = []
        self._blocked: dict[int, tuple[int, int, Callable[[int], None]]] = {}

    def run(self, programs: list[Iterator[Step]], *, block: int = 0, capacity: int = 4096) -> None:
        counters = [dict.fromkeys(("arrival", "wait"), 0) for _ in programs]
        clocks = [self.now] * len(programs)
        for warp, program in enumerate(programs):
            writer = TrackWriter(capacity, block=block, warp=warp, sm=block)
            writer.start(self.now, 1_000_000 + self.now)
            self.writers.append(writer)
            self._at(self.now, lambda warp=warp, program=program: self._step(warp, program, counters[warp], clocks))
        while self._queue:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        assert not self._blocked, f"deadlock: {self._blocked}"
        for warp, clock in enumerate(clocks):
            self.writers[warp].exit(max(self.now, clock) + 10, 1_000_000 + max(self.now, clock) + 10)

    def capture(self) -> Capture:
        return make_capture([writer.to_bytes() for writer in self.writers], warps=len(self.writers))

    def _at(self, cycle: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (cycle, self._order, action))

    def _word(self, operation: Operation, barrier: int, parity: int = 0) -> BarrierWord:
        return BarrierWord(operation, self.address + 8 * barrier, parity)

    def _step(self, warp: int, program: Iterator[Step], counters: dict[str, int], clocks: list[int]) -> None:
        step = next(program, None)
        if step is None:
            return
        what, at, number = step
        clock = max(self.now, clocks[warp] + 1)
        writer = self.writers[warp]
        again = lambda: self._step(warp, program, counters, clocks)  # noqa: E731
        if what == "work":
            clocks[warp] = clock
            self._at(clock + number, again)
        elif what in ("arrive", "copy"):
            clocks[warp] = clock
            operation = Operation.COPY if what == "copy" else Operation.ARRIVE
            writer.barrier(2 if what == "copy" else 1, clock, self._word(operation, at))
            source = (warp, counters["arrival"])
            counters["arrival"] += 1
            effect = clock + self.random.randint(1, BEFORE)

            def take_effect() -> None:
                self.phase_of[source] = self.barriers[at].phase
                if what == "copy":  # arrive.expect_tx and the copy: the bytes are expected before the arrival counts
                    self.barriers[at].flying += 1
                    self._changed(at, 1, 0, (source, True))
                    self._at(effect + number, lambda: self._changed(at, 0, -1, (source, True)))
                else:
                    self._changed(at, 1, 0, (source, False))
                self._at(self.now + 1, again)

            self._at(effect, take_effect)
        else:
            writer.record(Kind.BEGIN, 3, clock)
            writer.barrier(3, clock, self._word(Operation.WAIT, at, number))
            index = counters["wait"]
            counters["wait"] += 1

            def go_on(completed: int, blocked: bool) -> None:
                phase = max((p for p in self.barriers[at].completed_by if p % 2 == number), default=None)
                source = self.barriers[at].completed_by[phase] if phase is not None else None
                end = max(self.now, clock) + self.random.randint(2, WAKE)
                writer.record(Kind.END, 3, end)
                clocks[warp] = end
                who, by_copy = source if source is not None else (None, False)
                self.waits.append(
                    TrueWait(warp, index, blocked, who, by_copy, completed, -1 if phase is None else phase)
                )
                self._at(end, again)

            def test() -> None:
                if self.barriers[at].is_complete(number):
                    go_on(-1, False)
                else:
                    self._blocked[warp] = (at, number, lambda completed: go_on(completed, True))

            self._at(clock, test)

    def _changed(self, at: int, arrivals: int, copies: int, source: tuple[tuple[int, int], bool]) -> None:
        if self.barriers[at].change(arrivals, copies, source):
            for warp, (barrier, parity, go_on) in list(self._blocked.items()):
                if barrier == at and self.barriers[at].is_complete(parity):
                    del self._blocked[warp]
                    go_on(self.now)


def make_capture(
    tracks: list[np.ndarray], *, warps: int, grid: tuple[int, int, int] = (1, 1, 1), capacity: int = 4096
) -> Capture:
    """A capture of one launch from its tracks; one cycle is one ns."""
    launch = Launch("barriers", grid, (32 * warps, 1, 1), REGIONS, capacity, np.concatenate(tracks))
    return Capture([launch], Device(clock_mhz=1000.0))


def pipeline(
    stages: int,
    tiles: int,
    consumers: int,
    work: Callable[[], int],
    copy: Callable[[], int] | None,
    produce: Callable[[], int] | None = None,
) -> tuple[list[int], list[Iterator[Step]]]:
    """Warp 0 fills stages, the others use them: barriers 0..stages-1 are full, the next ones empty."""

    def producer() -> Iterator[Step]:
        for tile in range(tiles):
            stage, turn = tile % stages, tile // stages
            yield ("wait", stages + stage, (turn + 1) % 2)
            yield ("work", 0, (produce or work)())
            yield ("copy", stage, copy()) if copy is not None else ("arrive", stage, 0)

    def consumer() -> Iterator[Step]:
        for tile in range(tiles):
            stage, turn = tile % stages, tile // stages
            yield ("wait", stage, turn % 2)
            yield ("work", 0, work())
            yield ("arrive", stages + stage, 0)

    return [1] * stages + [consumers] * stages, [producer(), *(consumer() for _ in range(consumers))]


def many_producers(
    stages: int, tiles: int, kinds: list[bool], work: Callable[[], int], copy: Callable[[], int]
) -> tuple[list[int], list[Iterator[Step]]]:
    """Several warps fill each stage together, by a copy or by themselves (`kinds`); the last warp uses it."""

    def producer(copies: bool) -> Iterator[Step]:
        for tile in range(tiles):
            stage, turn = tile % stages, tile // stages
            yield ("wait", stages + stage, (turn + 1) % 2)
            yield ("work", 0, work())
            yield ("copy", stage, copy()) if copies else ("arrive", stage, 0)

    def consumer() -> Iterator[Step]:
        for tile in range(tiles):
            stage, turn = tile % stages, tile // stages
            yield ("wait", stage, turn % 2)
            yield ("work", 0, work())
            yield ("arrive", stages + stage, 0)

    return [len(kinds)] * stages + [1] * stages, [*(producer(copies) for copies in kinds), consumer()]


def meeting(warps: int, rounds: int, work: Callable[[], int]) -> tuple[list[int], list[Iterator[Step]]]:
    """All warps work, arrive at one barrier and wait for each other."""

    def warp() -> Iterator[Step]:
        for turn in range(rounds):
            yield ("work", 0, work())
            yield ("arrive", 0, 0)
            yield ("wait", 0, turn % 2)

    return [warps], [warp() for _ in range(warps)]
