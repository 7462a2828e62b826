"""Put the launches and collectives of a job's ranks on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from warplens.record.rank_notes import WALL, RankNotes
from warplens.trace.rank_axis import UNVOUCHED_NS, RankAxis
from warplens.trace.rank_clocks import RankCall, RankClock, RankClocks, TiedHost
from warplens.trace.schema import LaunchInfo, Meta


@dataclass(frozen=True)
class RankPlacement:
    """How far each launch moves in ns, by rank and number, and the clocks by which it does; calls are not relative to
    a trace yet. A launch moves as a whole, so that nothing inside it changes."""

    moves: dict[tuple[int, int], int] = field(default_factory=dict)
    clocks: RankClocks = field(default_factory=RankClocks)


def place_ranks(metas: Sequence[Meta]) -> RankPlacement:
    """Place the launches of traces that are one rank each; nothing moves if fewer than two ranks noted their clocks."""
    notes = {int(rank): RankNotes.from_json(one) for meta in metas for rank, one in meta.rank_notes.items()}
    notes = {rank: one for rank, one in notes.items() if any(one.samples.values())}
    if len(notes) < 2 or any(meta.rank_clocks for meta in metas):
        return RankPlacement()
    axis = RankAxis(notes)
    moves: dict[tuple[int, int], int] = {}
    ranks: dict[int, RankClock] = {}
    hosts = [0.0] * len(axis.hosts)
    for meta in metas:
        for rank in sorted({info.rank for info in meta.launches}):
            mine = [info for info in meta.launches if info.rank == rank]
            if rank not in notes:
                ranks[rank] = RankClock(len(hosts), UNVOUCHED_NS)
                hosts.append(0.0)
                continue
            moved, error, between = _move(axis, rank, mine, meta.origin_ns)
            moves |= moved
            host = axis.host_of[rank]
            error = max(error, ranks[rank].error_ns if rank in ranks else 0.0)
            ranks[rank] = RankClock(host, error, ended=notes[rank].ended)
            hosts[host] = max(hosts[host], between)
    names = [axis.notes_of(host)[0].host.name for host in range(len(axis.hosts))]
    methods = [tie.method for tie in axis.host_ties]
    unknown = len(hosts) - len(names)
    tied = map(TiedHost, names + ["unknown"] * unknown, methods + ["no notes"] * unknown, hosts)
    return RankPlacement(moves, RankClocks(dict(sorted(ranks.items())), tuple(tied), tuple(_calls(axis))).with_worst())


def _move(
    axis: RankAxis, rank: int, infos: Sequence[LaunchInfo], origin: int
) -> tuple[dict[tuple[int, int], int], float, float]:
    """How far the launches of a rank move, and the largest errors: of the device's clock, and of the hosts' clocks."""
    moves: dict[tuple[int, int], int] = {}
    error = between = 0.0
    # A simulated clock has no relation to others.
    real = [info for info in infos if info.clock != "simulated"]
    for device in {WALL if info.clock == "cpu" else str(info.device) for info in real}:
        mine = [info for info in real if (WALL if info.clock == "cpu" else str(info.device)) == device]
        times = np.array([(info.begin_ns + origin, info.end_ns + origin) for info in mine])
        placed, errors, others = axis.place(rank, device, times.reshape(-1))
        shift = placed.reshape(-1, 2) - times
        moves |= {(rank, info.launch): int(by) for info, by in zip(mine, shift[:, 0], strict=True)}
        inside = np.abs(shift[:, 1] - shift[:, 0])  # what moving as a whole neglects
        error = max(error, float((errors.reshape(-1, 2).max(axis=1) + inside).max()))
        between = max(between, float(others.max()))
    return moves, error, between


def _calls(axis: RankAxis) -> list[RankCall]:
    """Every call of a collective that several ranks noted, in the order of its begin."""
    found: list[RankCall] = []
    for rank in axis.notes:
        mine = [(key, calls[rank]) for key, calls in axis.collectives.items() if rank in calls]
        if not mine:
            continue
        on_host = np.array([(call.begin_ns, call.end_ns) for _, call in mine])
        on_device = np.array([(call.device_begin_ns, call.device_end_ns) for _, call in mine])
        times, known = np.full(on_host.shape, -1), np.zeros(on_host.shape, bool)
        for device in {call.device for _, call in mine}:
            here = np.array([call.device == device for _, call in mine])[:, None] & (on_device > 0)
            if here.any():
                times[here], known[here] = axis.place(rank, str(device), on_device[here])[0], True
        rest = ~known & (on_host > 0)
        times[rest] = axis.from_host(rank, on_host[rest])[0]
        found += [
            RankCall(rank, *key, call.operation, int(begin), max(int(end) - int(begin), 0) if ended else -1)
            for (key, call), (begin, end), ended in zip(mine, times, (known | rest)[:, 1], strict=True)
        ]
    return sorted(found, key=lambda call: call.begin_ns)
