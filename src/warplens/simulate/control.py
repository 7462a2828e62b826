"""The ends of basic blocks: branches, exits and barriers.

Each returns the next block, or -1 if it has set the program counters of the lanes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from warplens.simulate.batch_state import Group
from warplens.simulate.decode_site import DecodeSite
from warplens.simulate.numeric import Array

if TYPE_CHECKING:
    from warplens.simulate.lane_scheduler import LaneScheduler

Terminator = Callable[["LaneScheduler", Group, int], int]


def fall(scheduler: LaneScheduler, group: Group, index: int) -> int:
    return index + 1


def terminator(
    site: DecodeSite, labels: list[int], predicate: int | None, negated: bool, leave: int | None
) -> Terminator:
    """The terminator for a branch, return, exit, trap or barrier. `leave` is the return label of an inlined call."""
    end = _unconditional(site, labels, leave)
    if predicate is None:
        return end
    slot = predicate

    def conditional(scheduler: LaneScheduler, group: Group, index: int) -> int:
        value = scheduler.state.R[slot]
        chosen = group.restrict(np.logical_not(value) if negated else value)
        if chosen is None:
            return index + 1
        if chosen is group:
            return end(scheduler, group, index)
        scheduler.pc[group.mask] = index + 1
        target = end(scheduler, chosen, index)
        if target >= 0:
            scheduler.pc[chosen.mask] = target
        return -1

    return conditional


def _unconditional(site: DecodeSite, labels: list[int], leave: int | None) -> Terminator:
    opcode = site.opcode
    if opcode in ("bar", "barrier"):
        return _barrier(site)
    if opcode == "ret" and leave is not None:
        return _jump(labels, leave)
    if opcode in ("ret", "exit"):
        return _exit
    if opcode == "trap":

        def trap(scheduler: LaneScheduler, group: Group, index: int) -> int:
            raise site.error(f"trap reached by {scheduler.state.name(int(group.index[0]))}")

        return trap
    if opcode == "brx":
        return _indexed(site, labels)
    return _jump(labels, _label(site, site.need(1)[0]))


def _label(site: DecodeSite, name: str) -> int:
    label = site.scope.labels.get(name)
    if label is None:
        raise site.error(f"label {name} is not defined in this scope")
    return label


def _jump(labels: list[int], label: int) -> Terminator:
    return lambda scheduler, group, index: labels[label]


def _exit(scheduler: LaneScheduler, group: Group, index: int) -> int:
    scheduler.leave(group)
    return -1


def _indexed(site: DecodeSite, labels: list[int]) -> Terminator:
    operands = site.need(2)
    names = site.scope.tables.get(operands[1])
    if names is None:
        raise site.error(f".branchtargets list {operands[1]} is not defined in this scope")
    choice = site.read(operands[0], "u32")
    targets = [_label(site, name) for name in names]

    def jump(scheduler: LaneScheduler, group: Group, index: int) -> int:
        chosen = choice(scheduler.state.R)[group.mask]
        if int(chosen.max()) >= len(targets):
            raise site.error(f"index {int(chosen.max())} is out of range for {len(targets)} targets")
        scheduler.pc[group.mask] = np.array([labels[target] for target in targets])[chosen]
        return -1

    return jump


def _barrier(site: DecodeSite) -> Terminator:
    words = [word for word in site.modifiers if word not in ("aligned", "cta")]
    kind = words[0] if words else ""
    if kind not in ("sync", "arrive", "red") or "cluster" in site.has:
        raise site.unknown()
    operands = list(site.operands)
    result = operands.pop(0) if kind == "red" else None
    predicate = operands.pop() if kind == "red" else None
    number = site.read(operands[0], "u32")
    threads = site.read(operands[1], "u32") if len(operands) > 1 else None
    reduce = _reduction(site, result, predicate) if result is not None and predicate is not None else None
    simple = operands[0].isdigit() and threads is None and kind == "sync"

    def meet(scheduler: LaneScheduler, group: Group, index: int) -> int:
        if simple and group.all_live:
            scheduler.synchronise(group)
            return index + 1
        state = scheduler.state
        first = group.index[0]
        deliver = reduce(scheduler, group) if reduce is not None else None
        count = int(threads(state.R)[first]) if threads is not None else 0
        scheduler.arrive(group, number(state.R), count, index + 1, waits=kind != "arrive", deliver=deliver)
        return -1

    return meet


def _reduction(
    site: DecodeSite, result: str, predicate: str
) -> Callable[[LaneScheduler, Group], Callable[[Group], None]]:
    """`bar.red`: every lane contributes a predicate, and all lanes get the result when the barrier opens."""
    counts = "popc" in site.has
    put = site.put(result, "u32" if counts else "pred")
    brought = site.read(predicate, "pred")

    def book(scheduler: LaneScheduler, group: Group) -> Callable[[Group], None]:
        state = scheduler.state
        keep = brought(state.R).copy()
        scheduler.brought[group.mask] = keep[group.mask]

        def deliver(lanes: Group) -> None:
            votes = (scheduler.brought & lanes.mask).reshape(len(state.blocks), -1)
            present = lanes.mask.reshape(len(state.blocks), -1)
            if counts:
                outcome: Array = votes.sum(axis=1).astype(np.uint32)
            elif "and" in site.has:
                outcome = (votes | ~present).all(axis=1)
            else:
                outcome = votes.any(axis=1)
            spread = np.repeat(outcome, state.lanes_per_block)
            put(state, lanes, spread if lanes.full else spread[lanes.index])

        return deliver

    return book
