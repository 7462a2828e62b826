"""mbarriers and bulk copies.

Copies move their bytes at once; the barrier remembers when they would have arrived. A phase completes at the latest
cycle of its arrivals and copies, and a warp that waits for it continues no earlier. `State.completions` lists which
warp completed which phase, so that tests know who released whom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.simulate.batch_state import WARP, Group, State, Step
from warplens.simulate.decode_site import BUILDERS, DecodeSite, builds
from warplens.simulate.memory_access import locate
from warplens.simulate.numeric import Array

_CELL = 4
_PLAIN_COPY = BUILDERS["cp"]


@dataclass
class Mbarrier:
    """One mbarrier: what its current phase still waits for, and when the last part of it came."""

    count: int
    pending: int
    phase: int = 0
    bytes: int = 0
    latest: int = 0
    source: tuple[int, bool] = (0, False)
    """The warp of that last part, and whether it was a copy."""
    completed_at: int = 0


@dataclass(frozen=True)
class Completion:
    """A completed phase: the block's place in the batch, the barrier's address, and the warp that completed it when."""

    block: int
    address: int
    phase: int
    warp: int
    by_copy: bool
    cycle: int


@builds("mbarrier")
def _mbarrier(site: DecodeSite) -> Step:
    what = site.modifiers[0] if site.modifiers else ""
    if "shared::cluster" in site.has:
        raise site.unknown("uses a barrier of another block, which the interpreter does not support")
    if what == "init":
        return _init(site)
    if what == "inval":
        return lambda S, g: None
    if what in ("arrive", "arrive_drop", "expect_tx", "complete_tx"):
        return _arrive(site, what)
    if what in ("try_wait", "test_wait"):
        return _test(site)
    raise site.unknown()


def _init(site: DecodeSite) -> Step:
    address, _ = site.address(site.need(2)[0])
    count = site.read(site.operands[1], "u32")

    def step(S: State, g: Group) -> None:
        for lane in g.index.tolist():
            number = int(count(S.R)[lane])
            S.mbarriers[_place(S, lane, address(S.R))] = Mbarrier(number, number)

    return step


def _arrive(site: DecodeSite, what: str) -> Step:
    at = next(i for i, operand in enumerate(site.operands) if operand.startswith("["))
    address, _ = site.address(site.operands[at])
    amount = site.read(site.operands[at + 1], "u32") if len(site.operands) > at + 1 else None
    token = site.put(site.operands[0], "b64") if at and site.operands[0] != "_" else None
    expects = "expect_tx" in site.has

    def step(S: State, g: Group) -> None:
        phases = np.zeros(g.count, np.uint64)
        for number, lane in enumerate(g.index.tolist()):
            place = _place(S, lane, address(S.R))
            barrier = _barrier(S, site, place, lane)
            phases[number] = barrier.phase
            given = int(amount(S.R)[lane]) if amount is not None else 1
            if expects or what == "complete_tx":
                barrier.bytes += given if expects else -given
            if what.startswith("arrive"):
                barrier.pending -= 1 if expects else given
                barrier.count -= what == "arrive_drop"
            _note(S, place, lane // WARP, int(S.cycles[lane // WARP]), by_copy=False)
        if token is not None:
            token(S, g, phases)

    return step


def _test(site: DecodeSite) -> Step:
    operands = site.need(3)
    address, _ = site.address(operands[1])
    by_parity = "parity" in site.has
    wanted = site.read(operands[2], "u32" if by_parity else "b64")
    put = site.put(operands[0], "pred")

    def step(S: State, g: Group) -> None:
        done = np.zeros(g.count, bool)
        ready = np.zeros(S.warps, np.int64)
        for number, lane in enumerate(g.index.tolist()):
            barrier = _barrier(S, site, _place(S, lane, address(S.R)), lane)
            asked = int(wanted(S.R)[lane])
            done[number] = barrier.phase % 2 != asked % 2 if by_parity else barrier.phase > asked
            if done[number]:
                ready[lane // WARP] = max(int(ready[lane // WARP]), barrier.completed_at)
        put(S, g, done)
        S.wait_until(g, ready)

    return step


@builds("cp")
def _cp(site: DecodeSite) -> Step:
    if "bulk" not in site.has and "mbarrier" not in site.has:
        return _PLAIN_COPY(site)
    if "commit_group" in site.has or "wait_group" in site.has:
        return lambda S, g: None  # bulk copies to global memory are done at once
    if "tensor" in site.has or "multicast::cluster" in site.has:
        raise site.unknown()
    if "mbarrier" in site.has and "bulk" not in site.has:
        return _copies_arrive(site)
    return _bulk(site)


def _bulk(site: DecodeSite) -> Step:
    operands = site.need(3)
    to, _ = site.address(operands[0])
    source, _ = site.address(operands[1])
    size = site.read(operands[2], "u32")
    spaces = [word.partition("::")[0] for word in site.modifiers if word.partition("::")[0] in ("shared", "global")]
    completes = any(word.startswith("mbarrier::") for word in site.modifiers)
    barrier_at = site.address(operands[3])[0] if completes else None

    def step(S: State, g: Group) -> None:
        for lane in g.index.tolist():
            count = int(size(S.R)[lane])
            cells = np.arange(count // _CELL) * _CELL
            mask = np.zeros(S.lanes, bool)
            mask[lane] = True
            one = Group(mask, 1, False)
            for offset in cells.tolist():
                words, index = locate(S, one, site, source(S.R)[lane : lane + 1] + offset, _CELL, spaces[1])
                target, place = locate(S, one, site, to(S.R)[lane : lane + 1] + offset, _CELL, spaces[0])
                target[place] = words[index]
            if barrier_at is not None:
                where = _place(S, lane, barrier_at(S.R))
                _barrier(S, site, where, lane).bytes -= count
                S.loads += np.uint64(1)
                latency = int(S.clock.global_latency(S.global_warp, S.loads)[lane // WARP])
                _note(S, where, lane // WARP, int(S.cycles[lane // WARP]) + latency, by_copy=True)

    return step


def _copies_arrive(site: DecodeSite) -> Step:
    """`cp.async.mbarrier.arrive`: the thread's earlier copies arrive at the barrier when they are done."""
    address, _ = site.address(site.need(1)[0])
    counts = "noinc" in site.has

    def step(S: State, g: Group) -> None:
        for lane in g.index.tolist():
            where = _place(S, lane, address(S.R))
            barrier = _barrier(S, site, where, lane)
            barrier.pending -= counts
            warp = lane // WARP
            _note(S, where, warp, max(int(S.cycles[warp]), int(S.copies_open[warp])), by_copy=True)

    return step


def _place(S: State, lane: int, addresses: Array) -> tuple[int, int]:
    return lane // S.lanes_per_block, int(addresses[lane]) & 0xFFFFFF


def _barrier(S: State, site: DecodeSite, place: tuple[int, int], lane: int) -> Mbarrier:
    if place not in S.mbarriers:
        raise site.error(f"{S.name(lane)} uses the mbarrier at {place[1]:#x}, which was not initialised")
    return S.mbarriers[place]


def _note(S: State, place: tuple[int, int], warp: int, cycle: int, *, by_copy: bool) -> None:
    """Something came to a barrier at a cycle; complete the phase if it was the last part."""
    barrier = S.mbarriers[place]
    if cycle >= barrier.latest:
        barrier.latest, barrier.source = cycle, (warp, by_copy)
    if barrier.pending or barrier.bytes:
        return
    who, copy = barrier.source
    S.completions.append(Completion(place[0], place[1], barrier.phase, who % S.warps_per_block, copy, barrier.latest))
    barrier.completed_at, barrier.latest = barrier.latest, 0
    barrier.phase += 1
    barrier.pending = barrier.count
