"""A job of several hosts whose clocks are off, drift and wander, with the truth: what each rank would note."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warplens.record.rank_notes import ALL, NONE, WALL, ClockSample, CollectiveCall, HostClock, RankNotes

SECOND = 10**9
UNIX = 1_790_000_000 * SECOND
"""The true time zero of the simulation as Unix time."""


@dataclass
class SimulatedClock:
    """A clock that shows `offset` at true time 0, runs off by `drift`, and whose rate swings by `wander`."""

    offset: int
    drift: float = 0.0
    wander: float = 0.0
    period: float = 60.0 * SECOND
    phase: float = 0.0

    def __call__(self, true_ns: float) -> int:
        swing = self.wander * self.period * (np.sin(true_ns / self.period + self.phase) - np.sin(self.phase))
        return self.offset + round(true_ns) + round(true_ns * self.drift + swing)


@dataclass
class SimulatedJob:
    """`per_host` ranks on each of `hosts` hosts. True times are in ns from the begin of the job."""

    seed: int
    hosts: int = 2
    per_host: int = 2
    seconds: float = 20.0
    steps: int = 40
    latency_ns: float = 30_000
    asynchronous: bool = False
    """Whether the data is on the devices, so that only their streams wait for the collectives."""
    calls: dict[int, list[CollectiveCall]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random = np.random.default_rng(self.seed)
        ranks = range(self.hosts * self.per_host)

        def clock(offset: float, drift: float) -> SimulatedClock:
            period = random.uniform(20, 200) * SECOND
            return SimulatedClock(
                int(offset), random.normal(0, drift), 2e-7 * random.random(), period, random.uniform(0, 6)
            )

        self.host = [clock(random.uniform(1, 1e6) * SECOND, 2e-5) for _ in range(self.hosts)]
        self.wall = [clock(UNIX + random.normal(0, 2e6), 1e-6) for _ in range(self.hosts)]
        self.device = [clock(UNIX + random.normal(0, 1e6), 1e-5) for _ in ranks]
        self.calls = {rank: [] for rank in ranks}

    def host_of(self, rank: int) -> int:
        return rank // self.per_host

    def collective(self, entered: dict[int, float], operation: str = "all_reduce", root: int | None = None) -> None:
        """Each rank enters at its true time; those who wait leave after the last they wait for, and a latency."""
        number = len(self.calls[next(iter(entered))])
        for rank, begin in entered.items():
            waits = ALL if root is None else NONE if rank == root else str(root)
            since = max(entered.values()) if root is None else entered[rank if rank == root else root]
            end = max(begin, since) + self.latency_ns * (0.3 + self.random.exponential())
            host, device = self.host[self.host_of(rank)], self.device[rank]
            times = (host(begin), host(end), rank)
            if self.asynchronous:
                times = (host(begin - 1000), 0, rank, device(begin), device(end))
            self.calls[rank].append(CollectiveCall("world", number, operation, waits, *times))

    def run(self) -> dict[int, RankNotes]:
        """Steps of random lengths, each with a collective at its end."""
        for step in range(self.steps):
            at = (step + 1) * self.seconds / (self.steps + 1) * SECOND
            self.collective({rank: at + self.random.exponential(200_000) for rank in self.calls})
        return self.notes()

    def notes(self, *, vouched_ns: int = 0, samples_every: float = 0.5) -> dict[int, RankNotes]:
        """What every rank has noted at the end."""
        found = {}
        for rank in self.calls:
            host = self.host_of(rank)
            moments = np.arange(0, self.seconds, samples_every) * SECOND + self.random.uniform(0, 1e8)
            samples = {
                str(rank): [self._sample(host, self.device[rank], at, 6_000) for at in moments],
                WALL: [self._sample(host, self.wall[host], at, 200) for at in moments],
            }
            clock = HostClock(f"boot-{host}", f"node{host}", "adjtimex" if vouched_ns else "", vouched_ns)
            found[rank] = RankNotes(clock, samples, self.calls[rank])
        return found

    def _sample(self, host: int, clock: SimulatedClock, at: float, quick_ns: float) -> ClockSample:
        """A reading that takes a while on both ways, at times far longer."""
        there, back = quick_ns * (0.3 + self.random.exponential(size=2) * self.random.choice([0.2, 10], p=[0.8, 0.2]))
        return ClockSample(self.host[host](at), clock(at + there), self.host[host](at + there + back))
