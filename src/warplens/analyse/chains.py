"""The dependencies of the critical path: between the blocks of an SM, and between the warps inside a block."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from warplens.analyse.groups import reduce_by
from warplens.analyse.lifetimes import Array, Float, Int, Lifetimes, Mask
from warplens.analyse.producers import Matches
from warplens.trace.model import BLOCK_ROWS

NONE = -1


class Chains:
    """Blocks in sequence. A block's predecessor is the block of its launch and SM that ended last before it began."""

    def __init__(self, lives: Lifetimes) -> None:
        self.lives = lives
        blocks = lives.blocks
        place = blocks.launch * (int(blocks.sm.max(initial=0)) + 1) + blocks.sm
        low = int(blocks.begin_ns.min(initial=0))
        width = int(blocks.end_ns.max(initial=0)) - low + 2
        ended = place * width + blocks.end_ns - low
        order = np.argsort(ended, kind="stable")
        at = np.searchsorted(ended[order], place * width + blocks.begin_ns - low, side="right") - 1
        before = order[np.maximum(at, 0)]
        real = (at >= 0) & (place[before] == place) & (before != np.arange(len(blocks)))
        # Blocks with equal times could be each other's predecessor; requiring an earlier begin keeps this a tree.
        real &= blocks.begin_ns[before] < blocks.begin_ns
        self.before = np.where(real, before, NONE)

    @cached_property
    def generations(self) -> list[Int]:
        """Blocks grouped by their number of predecessors: each generation depends only on the one before."""
        count = np.zeros(len(self.before), np.int64)
        before = self.before.tolist()
        depth = count.tolist()
        for block in np.argsort(self.lives.blocks.begin_ns, kind="stable").tolist():
            if before[block] >= 0:
                depth[block] = depth[before[block]] + 1
        depths = np.array(depth, np.int64)
        order = np.argsort(depths, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(depths[order])) + 1) if len(order) else []

    def along(self, saved: Array) -> Array:
        """The sum of `saved` over each block and all its predecessors."""
        total = saved.copy()
        for generation in self.generations[1:]:
            total[generation] += total[self.before[generation]]
        return np.asarray(total)

    def latest(self) -> Int:
        """The latest end among each block and all its successors."""
        out = self.lives.blocks.end_ns.copy()
        for generation in reversed(self.generations[1:]):
            np.maximum.at(out, self.before[generation], out[generation])
        return np.asarray(out)

    def to(self, block: int) -> list[int]:
        """The chain of blocks that ends with `block`, first to last."""
        out = []
        while block >= 0:
            out.append(block)
            block = int(self.before[block])
        return out[::-1]


@dataclass(frozen=True)
class PathPieces:
    """The parts of tracks, in cycles, that the paths of all blocks run along: disjoint, ordered by track, then time."""

    track: Int
    begin: Int
    end: Int


@dataclass(frozen=True)
class PathCells:
    """Cycles of tracks in regions."""

    track: Int
    region: Int
    cycles: Float


class BlockPaths:
    """The path inside every block: back from its last record, and through each blocking wait to its producer."""

    def __init__(self, lives: Lifetimes, matches: Matches) -> None:
        self.lives = lives
        real = matches.producer >= 0
        wait, producer, flies = matches.wait[real], matches.producer[real], matches.flies[real]
        # A copy that was issued before the wait began still made it wait: its end is what released it.
        blocked = ((lives.end[producer] > lives.start[wait]) | flies) & (lives.end[producer] <= lives.end[wait])
        wait, producer = wait[blocked], producer[blocked]
        life = lives.finish - lives.begin + 2
        self.offset = np.cumsum(life) - life - lives.begin
        order = np.argsort(self._axis(wait, lives.end[wait]), kind="stable")
        self.wait, self.producer = wait[order], producer[order]
        self.freed = lives.end[self.producer]
        """When each wait's producer ended, or issued the copy that released the wait."""
        self.resumed = np.maximum(self.freed, lives.start[self.wait])

    def _axis(self, row: Int, cycle: Int) -> Int:
        return np.asarray(self.offset[self.lives.track_of(row)] + cycle)

    @cached_property
    def blocked(self) -> Int:
        """Cycles that each track waited for marked producers."""
        lives = self.lives
        waited = np.minimum(self.resumed, lives.end[self.wait]) - lives.start[self.wait]
        return np.bincount(lives.track_of(self.wait), weights=waited, minlength=len(lives)).astype(np.int64)

    def _latest_wait(self, track: Int, cycle: Int) -> Int:
        """The last blocking wait of a track that ended at or before a cycle."""
        lives = self.lives
        ends = self._axis(self.wait, lives.end[self.wait])
        at = np.searchsorted(ends, self.offset[track] + cycle, side="right") - 1
        here = lives.track_of(self.wait[np.maximum(at, 0)]) == track if len(self.wait) else np.zeros(len(track), bool)
        return np.where((at >= 0) & here, at, NONE)

    @cached_property
    def _route(self) -> tuple[Int, Int, Int, Mask]:
        """The last track of each block, its last blocking wait, the wait before each wait, and those on the path."""
        last = self._last_track()
        start = self._latest_wait(last, self.lives.finish[last])
        follow = self._links()
        onward = follow.tolist()
        seen = bytearray(len(onward))
        for at in start.tolist():
            while at >= 0 and not seen[at]:
                seen[at] = 1
                at = onward[at]
        return last, start, follow, np.frombuffer(bytes(seen), np.uint8).astype(bool)

    @cached_property
    def pieces(self) -> PathPieces:
        lives = self.lives
        last, start, follow, visited = self._route
        # The first piece of each block ends with the block; every other piece ends where a producer ended a wait.
        track = np.concatenate([last, lives.track_of(self.producer[visited])])
        end = np.concatenate([lives.finish[last], self.freed[visited]])
        left_by = np.concatenate([start, follow[visited]])
        begin = np.where(
            left_by >= 0, self.resumed[np.maximum(left_by, 0)] if len(self.freed) else 0, lives.begin[track]
        )
        begin = np.minimum(begin, end)
        order = np.argsort(self.offset[track] + begin, kind="stable")
        return PathPieces(track[order].astype(np.int64), begin[order], end[order])

    def _last_track(self) -> Int:
        """The track of each block that was recorded last; one of which only the lifetime is known if there is no other.

        In a specialised kernel, idle warps wait for the others at the kernel's end.
        """
        lives = self.lives
        order = np.lexsort((lives.finish, lives.has_regions, lives.block))
        ends = np.searchsorted(lives.block[order], np.arange(len(lives.blocks)), side="right") - 1
        return np.asarray(order[ends])

    def _links(self) -> Int:
        """For each blocking wait, the wait before its producer's end on the producer's track."""
        lives = self.lives
        track = lives.track_of(self.producer).astype(np.int64)
        follow = self._latest_wait(track, self.freed)
        # Always step back in time: a producer of zero length could otherwise create a cycle.
        ends = lives.end[self.wait]
        stuck = (follow >= 0) & (ends[np.maximum(follow, 0)] >= ends) if len(ends) else np.zeros(0, bool)
        follow[stuck] = self._latest_wait(track[stuck], ends[stuck] - 1)
        return follow

    @cached_property
    def on_path(self) -> PathCells:
        """The own cycles (children excluded) that lie on the blocks' paths, of each track and region.

        A wait for a copy also has the time for which the copy was under way before the wait began.
        """
        lives, visited = self.lives, self._route[3]
        tracks = np.unique(self.pieces.track)
        ends = np.cumsum(lives.counts[tracks])
        cuts = np.searchsorted(ends, np.arange(BLOCK_ROWS, ends[-1] if len(ends) else 0, BLOCK_ROWS))
        parts = [self._own_on_path(some) for some in np.split(tracks, np.unique(cuts)) if len(some)]
        wait = self.wait[visited]
        copied = (self.resumed - self.freed)[visited].astype(np.float64)
        parts.append(PathCells(lives.track_of(wait).astype(np.int64), lives.region[wait], copied))
        return PathCells(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(PathCells)))

    def _own_on_path(self, tracks: Int) -> PathCells:
        """The same for some tracks, without the time of copies."""
        lives, pieces = self.lives, self.pieces
        begin, end = self.offset[pieces.track] + pieces.begin, self.offset[pieces.track] + pieces.end
        before = np.append(0, np.cumsum(end - begin))

        def covered(axis: Int) -> Int:
            at = np.searchsorted(begin, axis, side="right") - 1
            inside = np.minimum(axis, end[np.maximum(at, 0)]) - begin[np.maximum(at, 0)]
            return np.where(at >= 0, before[np.maximum(at, 0)] + inside, 0)

        rows, counts = lives.rows_of(tracks), lives.counts[tracks]
        start = lives.start[rows] + np.repeat(self.offset[tracks], counts)
        inclusive = covered(start + lives.duration[rows]) - covered(start)
        nested = lives.is_span[rows] & ~lives.detached[rows]
        inclusive[~nested] = 0
        parent = lives.parent[rows]
        inner = np.flatnonzero(nested & (parent >= 0))
        around = parent[inner] - np.repeat(lives.first[tracks] - (np.cumsum(counts) - counts), counts)[inner]
        own = inclusive - np.bincount(around, weights=inclusive[inner], minlength=len(inclusive))
        many = len(lives.regions)
        key = np.repeat(np.arange(len(tracks)), counts) * many + lives.region[rows]
        cells, of_row = np.unique(key, return_inverse=True)
        cycles = np.bincount(of_row.reshape(-1), weights=own).astype(np.float64)
        return PathCells(tracks[cells // many], cells % many, cycles)

    @cached_property
    def floor(self) -> Int:
        """Cycles that each track would need without any blocking wait."""
        return np.asarray(np.maximum(self.lives.finish - self.lives.begin - self.blocked, 0))

    def longest(self, per_track: Array) -> Array:
        """The largest value among the tracks of each block."""
        return reduce_by(np.maximum, per_track, self.lives.block, len(self.lives.blocks))
