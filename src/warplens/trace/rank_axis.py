"""One time axis for the ranks of a job: that of the first rank's device, with a bound on the error of every rank.

A device is tied to its host's clock by readings of it. Ranks of one host share that clock. Hosts are tied by what was
measured between them: no rank can leave a collective before those it waits for have entered it. Hosts without common
collectives are tied by their Unix time, as good as their NTP or PTP state says, or else within `UNVOUCHED_NS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from warplens.record.rank_notes import ALL, WALL, CollectiveCall, RankNotes
from warplens.trace.clock_tie import ClockTie, tie_clocks, tie_samples
from warplens.trace.interval_fit import Float64, Int64

UNVOUCHED_NS = 1_000_000_000
"""How far apart the Unix times of two hosts may be if nothing vouches for them."""
UNSAMPLED_NS = 2_000_000
"""How far a globaltimer that was never read may be from its host's Unix time."""
FIRST_HOST, COLLECTIVES, SYNCHRONISED, UNVOUCHED = "first host", "collectives", "synchronised clocks", "wall clock"
MOST_CALLS = 1 << 16
"""Calls of collectives that a trace keeps, of all ranks together."""
_LOOSE_NS = 10**10
"""Where a bound is missing: it is this far from the others."""

CallKey = tuple[str, int]
"""The group and the number of a collective."""


class Stay(NamedTuple):
    """The stay of a rank in a collective on its host's clock: it entered no earlier than `begin` and left no later than
    `end`, which is None if unknown."""

    begin: int
    end: int | None
    waits_for: str


@dataclass(frozen=True)
class HostTie:
    """The way from a host's clock to that of the first host: ties, each followed forwards or backwards. `extra_ns` is
    an error beyond theirs."""

    method: str
    steps: tuple[tuple[ClockTie, bool], ...] = ()
    extra_ns: float = 0.0

    def __call__(self, time: Int64) -> tuple[Int64, Float64]:
        """Times on the clock of the first host, and their error."""
        error = np.full(len(time), self.extra_ns)
        for tie, forwards in self.steps:
            before, time = time, tie(time) if forwards else tie.inverse(time)
            error = error + tie.error_ns(before if forwards else time)
        return time, error


class RankAxis:
    """The time axis of ranks, by their notes, of which there is at least one."""

    def __init__(self, notes: Mapping[int, RankNotes]) -> None:
        self.notes = dict(sorted(notes.items()))
        keys = {rank: one.host.key or f"rank {rank}" for rank, one in self.notes.items()}
        self.hosts = list(dict.fromkeys(keys.values()))
        self.host_of = {rank: self.hosts.index(key) for rank, key in keys.items()}
        self.first = next(iter(self.notes))
        samples = self.notes[self.first].samples
        self._first_device = next((name for name, some in samples.items() if some and name != WALL), WALL)
        self._ties: dict[tuple[int, str], tuple[ClockTie, float]] = {}

    def to_host(self, rank: int, device: str, time: Int64) -> tuple[Int64, Float64]:
        """Times of a device of a rank on its host's clock, and their error."""
        tie, more = self._tie(rank, device)
        return tie(time), tie.error_ns(time) + more

    def from_host(self, rank: int, time: Int64) -> tuple[Int64, Float64]:
        """Times of a rank's host on the axis, and the error of the hosts' clocks."""
        time, error = self.host_ties[self.host_of[rank]](time)
        return self._tie(self.first, self._first_device)[0].inverse(time), error

    def place(self, rank: int, device: str, time: Int64) -> tuple[Int64, Float64, Float64]:
        """Times of a device of a rank on the axis, the error of the device's clock, and that of the hosts' clocks."""
        on_host, error = self.to_host(rank, device, time)
        placed, between = self.from_host(rank, on_host)
        return placed, error, between

    def _tie(self, rank: int, device: str) -> tuple[ClockTie, float]:
        """The tie of a device to its host's clock, and an error beyond that of the tie."""
        key = rank, device
        if key not in self._ties:
            samples = self.notes[rank].samples
            if samples.get(device):
                self._ties[key] = tie_samples(samples[device]), 0.0
            elif samples.get(WALL):  # a globaltimer counts Unix time, about
                self._ties[key] = tie_samples(samples[WALL]), UNSAMPLED_NS
            else:
                nothing = np.zeros(1, np.int64)
                self._ties[key] = tie_clocks(nothing, nothing, nothing), UNVOUCHED_NS
        return self._ties[key]

    @cached_property
    def collectives(self) -> dict[CallKey, dict[int, CollectiveCall]]:
        """The calls of each collective that several ranks noted. A group whose ranks called different collectives at
        the same number is left out: its calls do not belong together. Of too many, every second is kept, and so on."""
        found: dict[CallKey, dict[int, CollectiveCall]] = {}
        for rank, notes in self.notes.items():
            for call in notes.calls:
                found.setdefault((call.group, call.number), {})[rank] = call
        mixed = {key[0] for key, calls in found.items() if len({call.operation for call in calls.values()}) > 1}
        kept = {key: calls for key, calls in found.items() if len(calls) > 1 and key[0] not in mixed}
        every = 1
        while sum(map(len, kept.values())) > MOST_CALLS:
            every *= 2
            kept = {key: calls for key, calls in kept.items() if key[1] % every == 0}
        return kept

    @cached_property
    def stays(self) -> dict[CallKey, dict[int, Stay]]:
        """The stay of each rank in each collective."""
        found: dict[CallKey, dict[int, Stay]] = {key: {} for key in self.collectives}
        for rank in self.notes:
            mine = [(key, calls[rank]) for key, calls in self.collectives.items() if rank in calls]
            for device in {call.device for _, call in mine}:
                some = [one for one in mine if one[1].device == device]
                times = np.array([(call.device_begin_ns, call.device_end_ns) for _, call in some])
                low, error = self.to_host(rank, str(device), times[:, 0])
                low = low - np.ceil(error).astype(np.int64)
                high, error = self.to_host(rank, str(device), times[:, 1])
                high = high + np.ceil(error).astype(np.int64)
                for at, (key, call) in enumerate(some):
                    begin = int(low[at]) if call.device_begin_ns else call.begin_ns
                    end = int(high[at]) if call.device_end_ns else call.end_ns or None
                    found[key][rank] = Stay(begin, end, call.waits_for)
        return found

    @cached_property
    def host_ties(self) -> list[HostTie]:
        """How each host's clock is tied to the first one's: by collectives, over other hosts if need be, else by Unix
        time."""
        found: dict[int, HostTie] = {0: HostTie(FIRST_HOST)}
        reached = [0]
        for other in reached:
            for host in range(len(self.hosts)):
                if host not in found and (tie := self._by_collectives(host, other)) is not None:
                    found[host] = HostTie(COLLECTIVES, ((tie, True), *found[other].steps))
                    reached.append(host)
        return [found[host] if host in found else self._by_wall(host) for host in range(len(self.hosts))]

    def _by_collectives(self, host: int, other: int) -> ClockTie | None:
        """The tie of a host's clock to another's; None if no collectives bound their difference from both sides."""
        bounds = [bound for stays in self._stays_by_host if (bound := _bound(stays.get(host), stays.get(other)))]
        lows = [low for _, low, _ in bounds if low is not None]
        highs = [high for _, _, high in bounds if high is not None]
        if not lows or not highs:
            return None
        lowest, highest = max(lows) - _LOOSE_NS, min(highs) + _LOOSE_NS
        return tie_clocks(
            np.array([time for time, _, _ in bounds]),
            np.array([lowest if low is None else low for _, low, _ in bounds]),
            np.array([highest if high is None else high for _, _, high in bounds]),
        )

    @cached_property
    def _stays_by_host(self) -> list[dict[int, dict[int, Stay]]]:
        """For each collective the stays of each host's ranks."""
        found = []
        for stays in self.stays.values():
            hosts: dict[int, dict[int, Stay]] = {}
            for rank, stay in stays.items():
                hosts.setdefault(self.host_of[rank], {})[rank] = stay
            found.append(hosts)
        return found

    def _by_wall(self, host: int) -> HostTie:
        ours, first = self._wall(host), self._wall(0)
        if ours is None or first is None:
            return HostTie(UNVOUCHED, extra_ns=UNVOUCHED_NS)
        steps = ((ours, False), (first, True))
        errors = [{notes.host.error_ns for notes in self.notes_of(at)} for at in (host, 0)]
        if any(0 in some for some in errors):
            return HostTie(UNVOUCHED, steps, UNVOUCHED_NS)
        return HostTie(SYNCHRONISED, steps, sum(max(some) for some in errors))

    def notes_of(self, host: int) -> list[RankNotes]:
        return [notes for rank, notes in self.notes.items() if self.host_of[rank] == host]

    def _wall(self, host: int) -> ClockTie | None:
        """The tie of a host's Unix time to its clock."""
        samples = [sample for notes in self.notes_of(host) for sample in notes.samples.get(WALL, ())]
        return tie_samples(samples) if samples else None


def _bound(
    here: Mapping[int, Stay] | None, there: Mapping[int, Stay] | None
) -> tuple[int, int | None, int | None] | None:
    """What two hosts' stays in a collective say of the other clock's lead over this one: when, at least, at
    most."""
    if not here or not there:
        return None
    low = max((begin - end for end, begin in _waits(here, there)), default=None)
    high = min((end - begin for end, begin in _waits(there, here)), default=None)
    return None if low is None and high is None else (next(iter(here.values())).begin, low, high)


def _waits(waiting: Mapping[int, Stay], others: Mapping[int, Stay]) -> list[tuple[int, int]]:
    """For each rank that waits for one of the others: when it left, and the latest begin that it waited for."""
    latest = max(stay.begin for stay in others.values())
    found = []
    for stay in waiting.values():
        if stay.end is not None and stay.waits_for == ALL:
            found.append((stay.end, latest))
        elif stay.end is not None and stay.waits_for.isdecimal() and int(stay.waits_for) in others:
            found.append((stay.end, others[int(stay.waits_for)].begin))
    return found
