"""Keeps a trace small: all warps of some blocks of each launch, chosen from the headers of their tracks.

The blocks that are kept spread over the SMs and over the launch's time, and include the first to begin and the last to
end. The choice depends on nothing but the headers, so the same records give the same trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.launch.native_ranks import Kept, NativeRanks, keep_natively, rank_natively
from warplens.record.block_lives import BYTES_PER_BLOCK, BlockLives, pack_lives
from warplens.record.capture import AUTOMATIC, BETWEEN, BLOCK_LIVES, SAMPLED, Launch
from warplens.record.layout import HEADER, TRACK_MAGIC

BYTES_PER_SLOT = 8
"""What one slot of a track takes in a trace file, rounded up; docs/results/trace_size.md has the measurements."""
_GOLDEN, _PLASTIC = 0.6180339887498949, 0.7548776662466927
"""Multiples of these two numbers (mod 1) fill a square evenly."""
_UNFINISHED = 8
"""Blocks with a warp that never exited which are kept before others."""
_LIFE_SLOTS = 2
"""What the life of a warp without records counts as: one row, like a begin and an end."""
_LIVES_SHARE = 0.25
"""Of a launch's bytes, what the lifetimes of its blocks may take; past it they are left out."""

Int = npt.NDArray[np.int64]
Headers = npt.NDArray[np.void]


@dataclass(frozen=True)
class BlockHeaders:
    """The blocks of a launch that left a header, in the order of their numbers; `slots` is what each has recorded."""

    lives: BlockLives
    slots: Int
    unfinished: npt.NDArray[np.bool_]
    """Blocks with a warp that never exited."""

    def __len__(self) -> int:
        return len(self.lives)


class TrackSlots:
    """What the headers of a launch say of its tracks, read once for all questions."""

    def __init__(self, launch: Launch) -> None:
        self.headers = headers = headers_of(launch)
        self.begun = headers["magic"] == TRACK_MAGIC
        exited, written = headers["state"] != 0, headers["written"]
        self.exited = exited
        # A warp that never exited did not say how much it wrote, so all of its slots count.
        full = np.where(exited & (written < launch.capacity), written, launch.capacity).astype(np.int64)
        self.slots = np.where(self.begun, full, 0)
        """The slots that each track has kept."""
        self.taken = self.slots
        """The slots that each track takes in a trace. A warp without records takes a row for its life, where it gets
        one."""
        if _counts_lives(launch):
            self.taken = np.where(self.begun & exited & (written == 0), _LIFE_SLOTS, self.slots)

    def lost(self, capacity: int) -> int:
        """Slots that did not fit, over all tracks."""
        over = self.headers["written"].astype(np.int64) - capacity
        return int(over[(over > 0) & self.begun & self.exited].sum())


class RankedBlocks:
    """The blocks of a launch in the order in which they are kept. Nothing of this depends on how many are, so it can be
    worked out before all launches are known. `native` has what was found in C."""

    def __init__(self, launch: Launch, native: NativeRanks | None = None) -> None:
        self._launch, self.native = launch, native
        taken = int(self.tracks.taken.sum()) if native is None else native.taken
        self.bytes = taken * bytes_per_slot(launch)
        """What the whole launch takes in a trace file."""

    def work_out(self) -> RankedBlocks:
        """Answer all questions now."""
        self.order, self.lives  # noqa: B018
        return self

    @cached_property
    def tracks(self) -> TrackSlots:
        return TrackSlots(self._launch)

    @cached_property
    def blocks(self) -> BlockHeaders:
        if self.native is not None:
            return BlockHeaders(self.native.lives, self.native.slots, self.native.unfinished)
        return block_headers(self._launch, self.tracks)

    @cached_property
    def order(self) -> Int:
        if self.native is not None:
            return self.native.order
        return _preferred(self.blocks) if len(self.blocks) else np.empty(0, np.int64)

    @cached_property
    def lives(self) -> str:
        if self.native is not None:
            return self.native.packed_lives()
        return pack_lives(self.blocks.lives)


def rank_blocks(launches: Sequence[Launch]) -> list[RankedBlocks]:
    """Rank the blocks of each launch."""
    return list(map(RankedBlocks, launches, rank_natively(launches, list(map(_counts_lives, launches)))))


def _counts_lives(launch: Launch) -> bool:
    """Whether a warp without records gets a row for its life (decode/warp_lives.py)."""
    return not launch.regions or bool(launch.extra.get(AUTOMATIC))


def most_bytes(launch: Launch) -> int:
    """What a launch takes in a trace file at most."""
    return launch.tracks * max(launch.capacity, _LIFE_SLOTS) * bytes_per_slot(launch)


def bytes_per_slot(launch: Launch) -> int:
    """What one slot of the launch's tracks takes in a trace file: the code between two regions has rows of its own."""
    return BYTES_PER_SLOT * (2 if launch.extra.get(BETWEEN) else 1)


def sample_launches(
    launches: Sequence[Launch], trace_bytes: int | None, ranked: Mapping[int, RankedBlocks] = MappingProxyType({})
) -> list[Launch]:
    """Launches whose trace fits in about `trace_bytes`. Each keeps one block at least; None keeps everything. `ranked`
    has blocks that were ranked before, by the id of the launch's bytes."""
    if trace_bytes is None or sum(map(most_bytes, launches)) <= trace_bytes:
        return list(launches)
    fresh = [launch for launch in launches if id(launch.raw) not in ranked]
    known = {**ranked, **{id(launch.raw): one for launch, one in zip(fresh, rank_blocks(fresh), strict=True)}}
    blocks = [known[id(launch.raw)] for launch in launches]
    if sum(one.bytes for one in blocks) <= trace_bytes:
        return list(launches)
    level = _level([one.bytes for one in blocks], trace_bytes)
    found = list(launches)
    large = [at for at, one in enumerate(blocks) if one.bytes > level]
    lives = [_lives_within(blocks[at], level) for at in large]
    room = [(level - len(text)) / bytes_per_slot(launches[at]) for at, text in zip(large, lives, strict=True)]
    samples = _samples([launches[at] for at in large], [blocks[at] for at in large], room)
    for at, sample, text in zip(large, samples, lives, strict=True):
        if sample is not None:
            found[at] = sample.noting(extra={BLOCK_LIVES: text}) if text else sample
    return found


def sample_launch(launch: Launch, keep_blocks: Int, known: TrackSlots | None = None) -> Launch:
    """The launch with the records of some blocks only, named by number; tracks that wrote nothing stay."""
    tracks = known or TrackSlots(launch)
    rows = ~tracks.begun | _among(tracks.headers["block"], keep_blocks)
    kept = launch.raw.reshape(-1, launch.stride)[rows].reshape(-1)
    share = {
        "blocks": len(keep_blocks),
        "of": launch.blocks,
        "records": int(tracks.slots[rows].sum()),
        "of_records": int(tracks.slots.sum()),
        "lost": tracks.lost(launch.capacity),
    }
    return launch.noting(raw=kept, extra={SAMPLED: share})


def _among(values: npt.NDArray[Any], wanted: Int) -> npt.NDArray[np.bool_]:
    """Which of the values are among others, which are in ascending order."""
    at = np.searchsorted(wanted, values)
    found: npt.NDArray[np.bool_] = np.append(wanted, -1)[at] == values
    return found


def choose_blocks(blocks: BlockHeaders, slots: float, order: Int | None = None) -> Int:
    """Numbers of blocks that hold at most `slots` slots together, or of one block where none fits; `order` is that in
    which they are kept, if it is known."""
    order = _preferred(blocks) if order is None else order
    total = np.cumsum(blocks.slots[order])
    return np.sort(blocks.lives.number[order[: max(int(np.searchsorted(total, slots, side="right")), 1)]])


def headers_of(launch: Launch) -> Headers:
    """The header of each track, where it lies in the launch's bytes."""
    raw = np.ascontiguousarray(launch.raw)
    return np.asarray(np.ndarray(launch.tracks, HEADER, raw, strides=(launch.stride,)))


def block_headers(launch: Launch, known: TrackSlots | None = None) -> BlockHeaders:
    """What the headers say of each block: where it ran, from its first warp's start to its last warp's exit."""
    tracks = known or TrackSlots(launch)
    mine, slots, exited = tracks.headers, tracks.taken, tracks.exited
    if not tracks.begun.all():
        mine, slots, exited = mine[tracks.begun], slots[tracks.begun], exited[tracks.begun]
    block = mine["block"].astype(np.int64)
    if not len(block):
        none = np.empty(0, np.int64)
        return BlockHeaders(BlockLives(none, none, none, none), none, np.empty(0, bool))
    if (block[1:] < block[:-1]).any():
        order = np.argsort(block, kind="stable")
        mine, block, slots, exited = mine[order], block[order], slots[order], exited[order]
    first = _firsts(block)
    start, end = mine["start_ns"].astype(np.int64), mine["exit_ns"].astype(np.int64)
    # A warp that never exited lived at least until its start.
    end = np.maximum(end, start) if exited.all() else np.where(exited, np.maximum(end, start), start)
    begin_ns, end_ns = np.minimum.reduceat(start, first), np.maximum.reduceat(end, first)
    zero = begin_ns.min()
    lives = BlockLives(block[first], mine["sm"][first].astype(np.int64), begin_ns - zero, end_ns - zero)
    return BlockHeaders(lives, np.add.reduceat(slots, first), np.logical_or.reduceat(~exited, first))


def _firsts(ordered: Int) -> Int:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _lives_within(ranked: RankedBlocks, level: float) -> str:
    """The lifetimes of a launch's blocks, or nothing where they would take too much of its bytes."""
    known = ranked.blocks if ranked.native is None else ranked.native
    return ranked.lives if len(known) * BYTES_PER_BLOCK <= _LIVES_SHARE * level else ""


def _samples(
    launches: Sequence[Launch], blocks: Sequence[RankedBlocks], room: Sequence[float]
) -> Iterator[Launch | None]:
    """Each launch with the blocks that have at most `room` slots, or None where those are all."""
    native = [(one.native, slots) for one, slots in zip(blocks, room, strict=True) if one.native is not None]
    kept = iter(keep_natively([one for one, _ in native], [slots for _, slots in native]))
    for launch, ranked, slots in zip(launches, blocks, room, strict=True):
        yield _sampled(launch, ranked, slots) if ranked.native is None else _cut(launch, ranked.native, next(kept))


def _sampled(launch: Launch, ranked: RankedBlocks, room: float) -> Launch | None:
    blocks = ranked.blocks
    keep = choose_blocks(blocks, room, ranked.order)
    if len(keep) == len(blocks):
        return None
    sample = sample_launch(launch, keep, ranked.tracks)
    share = {
        **sample.extra[SAMPLED],
        "with_records": int((blocks.slots[np.searchsorted(blocks.lives.number, keep)] > 0).sum()),
        "known": len(blocks),
        "sms": int(np.count_nonzero(np.bincount(blocks.lives.sm))),
    }
    return sample.noting(extra={SAMPLED: share})


def _cut(launch: Launch, ranked: NativeRanks, kept: Kept) -> Launch | None:
    if kept.blocks == len(ranked):
        return None
    share = {
        "blocks": kept.blocks,
        "of": launch.blocks,
        "records": kept.records,
        "of_records": ranked.written,
        "lost": ranked.lost,
        "with_records": kept.with_records,
        "known": len(ranked),
        "sms": ranked.sms,
    }
    return launch.noting(raw=kept.raw, extra={SAMPLED: share})


def _level(needs: Sequence[int], budget: int) -> float:
    """The bytes that each launch may take such that those which need less leave the rest to the others."""
    left = float(budget)
    ordered = sorted(needs)
    for at, need in enumerate(ordered):
        fair = left / (len(ordered) - at)
        if need > fair:
            return fair
        left -= need
    return float(ordered[-1])


def _preferred(blocks: BlockHeaders) -> Int:
    """The blocks in the order in which they are kept.

    First those that frame the launch: the last to end, the first to begin, the last to begin, and one in the middle.
    Then a few that never ended, which a trap or a hang leaves and a reader looks for. Then rounds over all SMs, in
    which each SM gives one block: at another share of its time in each round and on each SM, so that any number of
    blocks is spread over both.
    """
    lives, count = blocks.lives, len(blocks)
    by_start = np.argsort(lives.begin, kind="stable")  # blocks are in the order of their numbers
    last_to_end = count - 1 - int(np.argmax(lives.end[::-1]))
    frame = dict.fromkeys([last_to_end, int(by_start[0]), int(by_start[-1]), int(by_start[count // 2])])
    frame |= dict.fromkeys(np.flatnonzero(blocks.unfinished)[:_UNFINISHED].tolist())
    chosen = np.array(list(frame), np.int64)
    taken = np.zeros(count, bool)
    taken[chosen] = True
    rest = by_start[~taken[by_start]]
    if not len(rest):
        return chosen
    of = lives.sm[rest]
    order = np.argsort(of, kind="stable")
    rest, of = rest[order], of[order]
    first = _firsts(of)
    sms, many = of[first], np.diff(first, append=len(of))
    # An SM that has a block in the frame goes last in each round.
    framed = np.zeros(int(lives.sm.max()) + 1, bool)
    framed[lives.sm[chosen]] = True
    late = framed[sms]
    turn = np.empty(len(sms), np.int64)
    turn[np.argsort(np.arange(len(sms)) * _GOLDEN % 1.0 + late, kind="stable")] = np.arange(len(sms))
    group, place = np.repeat(np.arange(len(sms)), many), np.arange(len(rest)) - np.repeat(first, many)
    turn_of = turn[group]
    # The k smallest of i * golden ratio (mod 1) lie evenly among all i, for every k.
    key = (place * _GOLDEN + turn_of * _PLASTIC) % 1.0
    round_ = np.empty(len(rest), np.int64)
    round_[np.lexsort((key, group))] = place
    return np.concatenate([chosen, rest[np.lexsort((turn_of, round_))]])
