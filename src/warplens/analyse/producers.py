"""Match each wait to its producer: the record or span of the same block that ended the wait.

Where barriers were recorded, the producer is the arrival that released the wait. Elsewhere it is guessed from times and
values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import numpy as np

from warplens.analyse.groups import in_groups
from warplens.analyse.lifetimes import Int, Lifetimes, Mask
from warplens.analyse.region_purpose import Purpose
from warplens.trace.arrays import run_starts
from warplens.trace.barrier_rows import NO_RECORD

NO_PRODUCER = -1
_TRIES = 4
_OWN_WORK = re.compile(r"(?:mma|store|copy|load|atomic) wait\b")
"""The names that automatic marks give to waits for products, stores, copies and loads of the warp itself."""
_HASH = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Matches:
    """For each wait (a row): its producer's row or -1, and how the two were matched.

    `by_key` says that both hold the same values, `by_edge` that the barrier's records tell the producer, and `flies`
    that the producer issued a copy, whose end released the wait.
    """

    wait: Int
    producer: Int
    by_key: Mask
    by_edge: Mask
    flies: Mask

    def of_each_variant(self, lives: Lifetimes) -> dict[str, Matches]:
        """The matches of every variant of a kernel; `lives` are those of the whole trace."""
        if len(lives.variants) == 1:
            return dict.fromkeys(lives.variants, self)
        places = in_groups(lives.variant[lives.of_row[self.wait]], len(lives.variants))
        columns = [getattr(self, one.name) for one in fields(self)]
        parts = (Matches(*(column[at] for column in columns)) for at in places)
        return dict(zip(lives.variants, parts, strict=True))


def match_waits(lives: Lifetimes, kinds: list[Purpose]) -> Matches:
    """Match every wait to its producer.

    A wait on a recorded barrier has the arrival that released it, or none if it did not have to wait. Where another
    wait contains value marks, such as stage and phase, its producer is the last span of another warp of the block that
    contains the same values and ended before the wait did. Otherwise it is the span of another warp of the block that
    ended last within the wait. If no span ended within it, the wait was for something that is not marked, and has no
    producer.
    """
    is_wait = np.array([kind is Purpose.WAIT for kind in kinds], bool)[lives.region] & lives.is_span
    edge_wait, edge_producer, edge_copies = _edges(lives)
    is_wait[edge_wait] = True
    wait = np.flatnonzero(is_wait & (lives.duration > 0))
    producer = np.full(len(wait), NO_PRODUCER, np.int64)
    by_key, by_edge, flies = (np.zeros(len(wait), bool) for _ in range(3))
    if len(wait):
        leaf = _leaves(lives) & ~is_wait
        key = _keys(lives)
        if key is not None:
            keyed = np.flatnonzero(key[wait] != 0)
            source = np.flatnonzero(lives.is_span & ~is_wait & (key != 0))
            found = _latest(lives, wait[keyed], source, key)
            producer[keyed[found >= 0]] = found[found >= 0]
            by_key[keyed[found >= 0]] = True
        place = np.searchsorted(wait, edge_wait)
        real = (place < len(wait)) & (wait[np.minimum(place, len(wait) - 1)] == edge_wait)
        place = place[real]
        by_edge[place], by_key[place] = True, False
        producer[place], flies[place] = edge_producer[real], edge_copies[real]
        left = np.flatnonzero(~by_key & ~by_edge & ~_own_waits(lives, wait, edge_wait))
        producer[left] = _latest(lives, wait[left], np.flatnonzero(leaf), None)
    return Matches(wait, producer, by_key, by_edge, flies)


def _own_waits(lives: Lifetimes, wait: Int, edge_wait: Int) -> Mask:
    """Waits for the warp's own asynchronous work, in kernels whose barriers were recorded: no other warp ends them."""
    own = np.array([_OWN_WORK.match(name) is not None for name in lives.regions], bool)
    kernel = lives.trace.codes("kernel")[0]
    return np.asarray(own[lives.region[wait]] & np.isin(kernel[wait], np.unique(kernel[edge_wait])))


def _edges(lives: Lifetimes) -> tuple[Int, Int, Mask]:
    """The spans that wait on recorded barriers, the record that released each (or none), and whether by a copy."""
    table = lives.trace.edges
    wait, arrival, waited = (table.column(name).to_numpy() for name in ("wait", "arrival_record", "waited_cycles"))
    block = lives.block[lives.of_row]
    inside = (arrival >= 0) & (waited > 0)
    inside &= block[np.maximum(arrival, 0)] == block[wait] if len(wait) else False
    copies = np.array([kind == "copy" for kind in table.column("kind").to_pylist()], bool)
    return wait.astype(np.int64), np.where(inside, arrival, NO_PRODUCER).astype(np.int64), copies & inside


def _leaves(lives: Lifetimes) -> Mask:
    """Spans without inner spans, and asynchronous spans."""
    leaf = lives.is_span.copy()
    leaf[lives.parent[lives.inner]] = False
    return np.asarray(leaf | lives.detached)


def _keys(lives: Lifetimes) -> Int | None:
    """A hash of the values recorded directly inside each span, 0 where there are none."""
    plain = lives.trace.numpy("released_by") == NO_RECORD
    rows = np.flatnonzero(lives.trace.of_kind("value") & (lives.parent >= 0) & plain)
    if not len(rows):
        return None
    bits = lives.trace.numpy("value")[rows].view(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits ^ (lives.region[rows].astype(np.uint64) + np.uint64(1)) * np.uint64(_HASH)) * np.uint64(_HASH)
        mixed ^= mixed >> np.uint64(29)
        order = np.argsort(lives.parent[rows], kind="stable")
        parent = lives.parent[rows][order]
        heads = run_starts(parent)
        total = np.add.reduceat(mixed[order], heads)
    key = np.zeros(len(lives.start), np.int64)
    key[parent[heads]] = ((total >> np.uint64(24)) | np.uint64(1)).astype(np.int64)
    return key


def _latest(lives: Lifetimes, wait: Int, source: Int, key: Int | None) -> Int:
    """Find the source span of each wait's block (and key) that ended last at or before the wait's end.

    Without keys it must also have ended after the wait began. A span of the waiting warp itself counts only if it is
    asynchronous.
    """
    found = np.full(len(wait), NO_PRODUCER, np.int64)
    if not len(wait) or not len(source):
        return found
    groups, group_of_wait, group_of_source = _groups(lives, wait, source, key)
    begin = lives.blocks.begin
    width = int((lives.blocks.end - begin).max()) + 2
    if groups * width > np.iinfo(np.int64).max // 2:
        return found
    block = lives.block
    ended = group_of_source * width + lives.end[source] - begin[block[lives.of_row[source]]]
    order = np.argsort(ended, kind="stable")
    ended, source, group_of_source = ended[order], source[order], group_of_source[order]
    limit = group_of_wait * width + lives.end[wait] - begin[block[lives.of_row[wait]]]
    at = np.searchsorted(ended, limit, side="right") - 1
    open_ = np.arange(len(wait))
    for _ in range(_TRIES):
        inside = at[open_] >= 0
        open_ = open_[inside]
        if not len(open_):
            break
        candidate = at[open_]
        same_group = group_of_source[candidate] == group_of_wait[open_]
        open_, candidate = open_[same_group], candidate[same_group]
        row = source[candidate]
        own = (lives.of_row[row] == lives.of_row[wait[open_]]) & ~lives.detached[row]
        good = ~own
        if key is None:
            in_time = lives.end[row] > lives.start[wait[open_]]
            good &= in_time
            own &= in_time  # earlier candidates ended even earlier
        found[open_[good]] = row[good]
        open_ = open_[own]
        at[open_] -= 1
    return found


def _groups(lives: Lifetimes, wait: Int, source: Int, key: Int | None) -> tuple[int, Int, Int]:
    of_wait, of_source = lives.block[lives.of_row[wait]], lives.block[lives.of_row[source]]
    if key is None:
        return len(lives.blocks), of_wait, of_source
    both = np.concatenate([of_wait, of_source]).astype(np.uint64)
    with np.errstate(over="ignore"):
        both = both * np.uint64(_HASH) ^ np.concatenate([key[wait], key[source]]).astype(np.uint64)
    _, index = np.unique(both, return_inverse=True)
    index = index.reshape(-1).astype(np.int64)
    return int(index.max()) + 1, index[: len(wait)], index[len(wait) :]
