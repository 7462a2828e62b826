"""Roles of warps at each barrier, from the edges of a trace: who arrives, who waits, and who is waited for.

Only barrier records say this. Without them there are no roles, rather than guessed ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from warplens.trace.joined_column import combined
from warplens.trace.model import Trace

PRODUCER, CONSUMER, PEER = "producer", "consumer", "peer"


@dataclass(frozen=True)
class BarrierRole:
    """One barrier of a kernel, in all its blocks and launches.

    `producers` are the warps (by their number in the block) whose arrivals or copies released others, `consumers` those
    that waited for them. `waits` counts the waits with a known arrival, `waited` those that had to wait, `unknown`
    those whose arrival was not recorded. Times are sums over all warps; `slack_ns` is the median time by which the
    arrival came before the wait (negative: the wait came first).
    """

    kernel: str
    barrier: int
    kind: str
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    wait_regions: tuple[str, ...]
    arrival_regions: tuple[str, ...]
    waits: int
    waited: int
    unknown: int
    waited_ns: float
    slack_ns: float

    @property
    def one_way(self) -> bool:
        """Whether some warps only arrive and others only wait."""
        return bool(self.producers) and not set(self.producers) & set(self.consumers)


@dataclass(frozen=True)
class WarpDuty:
    """What one warp of a kernel's blocks does for others.

    `role` is `producer` if copies or arrivals that others waited for came from it and it waits only for space,
    `consumer` if it waits for the data of producers, `peer` if it does both at the same barriers. `waited_ns` is how
    long it waited, `kept_waiting_ns` how long others waited for it; both are sums over all blocks and launches.
    `own_waits` are regions in which it waits for what it has started itself, such as its own copies.
    """

    kernel: str
    warp: int
    role: str
    waited_ns: float
    kept_waiting_ns: float
    own_waits: tuple[str, ...] = ()


def barrier_roles(trace: Trace) -> tuple[BarrierRole, ...]:
    """The barriers of every kernel, the one with the longest waits first. Empty if the trace has no edges."""
    edges = _Edges(trace)
    out = []
    for key in np.unique(edges.key).tolist():
        of = np.flatnonzero(edges.key == key)
        known = of[edges.known[of]]
        kinds = edges.kind[known] if len(known) else edges.kind[of]
        out.append(
            BarrierRole(
                kernel=edges.kernels[int(edges.kernel[of[0]])],
                barrier=int(edges.barrier[of[0]]),
                kind=edges.kinds[int(np.bincount(kinds).argmax())],
                producers=_numbers(edges.arrival_warp[known]),
                consumers=_numbers(edges.wait_warp[of]),
                wait_regions=edges.regions(edges.wait[of]),
                arrival_regions=edges.regions(edges.arrival[known]),
                waits=len(known),
                waited=int((edges.waited_ns[known] > 0).sum()),
                unknown=len(of) - len(known),
                waited_ns=float(edges.waited_ns[of].sum()),
                slack_ns=float(np.median(edges.slack_ns[known])) if len(known) else 0.0,
            )
        )
    return tuple(sorted(out, key=lambda role: -role.waited_ns))


def warp_duties(trace: Trace) -> tuple[WarpDuty, ...]:
    """The role of each warp at the kernel's barriers, by kernel and warp. Empty if the trace has no edges.

    A pipeline has barriers in both directions: the producer waits for space, the consumer for data. The direction of
    the data is that of the copies; without copies it is the direction of the barrier that is waited for first.
    """
    edges = _Edges(trace)
    out = []
    for kernel, name in enumerate(edges.kernels):
        of = np.flatnonzero((edges.kernel == kernel) & edges.known)
        if not len(of):
            continue
        source, target = edges.arrival_warp[of], edges.wait_warp[of]
        own = source == target
        data = of[_carries_data(edges, of) & ~own]
        feeds, fed = set(edges.arrival_warp[data].tolist()), set(edges.wait_warp[data].tolist())
        for warp in sorted({*source.tolist(), *target.tolist()}):
            role = PRODUCER if warp in feeds - fed else CONSUMER if warp in fed - feeds else PEER
            out.append(
                WarpDuty(
                    name,
                    warp,
                    role,
                    waited_ns=float(edges.waited_ns[of][target == warp].sum()),
                    kept_waiting_ns=float(edges.waited_ns[of][source == warp].sum()),
                    own_waits=edges.regions(edges.wait[of][own & (target == warp)]),
                )
            )
    return tuple(out)


def _carries_data(edges: _Edges, of: np.ndarray) -> np.ndarray:
    """The edges along which data flows."""
    copies = edges.kind[of] == edges.kinds.index("copy")
    if copies.any():
        return np.asarray(copies)
    # In a pipeline of plain arrivals, the first edges of each block are those of filled stages.
    block = edges.block[of]
    begin = edges.begin_ns[of]
    first = np.zeros(len(of), bool)
    order = np.lexsort((begin, block))
    first[order[np.append(True, block[order][1:] != block[order][:-1])]] = True
    pairs = {(int(a), int(b)) for a, b in zip(edges.arrival_warp[of][first], edges.wait_warp[of][first], strict=True)}
    feeds = {a for a, _ in pairs} - {b for _, b in pairs}
    return np.isin(edges.arrival_warp[of], list(feeds))


class _Edges:
    """The columns of `Trace.edges` as arrays, with the warps on both sides."""

    def __init__(self, trace: Trace) -> None:
        table = trace.edges
        number = {
            name: table.column(name).to_numpy()
            for name in ("barrier", "wait", "arrival", "arrival_record", "waited_ns", "slack_ns", "launch", "rank")
        }
        self.barrier, self.wait, self.arrival = number["barrier"], number["wait"], number["arrival"]
        self.waited_ns, self.slack_ns = number["waited_ns"], number["slack_ns"]
        self.kind, self.kinds = _codes(table, "kind")
        self.kernel, self.kernels = _codes(table, "kernel")
        self.known = number["arrival_record"] >= 0
        rows = np.maximum(number["arrival_record"], 0)
        warp = trace.numpy("warp").astype(np.int64) if table.num_rows else np.zeros(1, np.int64)
        self.arrival_warp, self.wait_warp = warp[rows], warp[self.wait]
        self.block = (
            (number["launch"].astype(np.int64) << 32) + trace.at("block", self.wait) if table.num_rows else rows
        )
        self.begin_ns = trace.numpy("start_ns")[self.wait]
        named = self.kind == self.kinds.index("barrier") if table.num_rows else np.zeros(0, bool)
        self.key = (self.kernel.astype(np.int64) << 34) + (named.astype(np.int64) << 33) + self.barrier
        self._regions = trace.codes("region") if table.num_rows else (np.zeros(0, np.int64), [])

    def regions(self, rows: np.ndarray) -> tuple[str, ...]:
        codes, names = self._regions
        return tuple(names[code] for code in np.unique(codes[rows]))


def _codes(table: pa.Table, name: str) -> tuple[np.ndarray, list[str]]:
    column = combined(table.column(name))
    return column.indices.to_numpy().astype(np.int64), column.dictionary.to_pylist()


def _numbers(warps: np.ndarray) -> tuple[int, ...]:
    return tuple(int(warp) for warp in np.unique(warps))
