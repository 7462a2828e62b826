"""Ranks the blocks of many launches and copies those that are kept, in C: launch/block_sampler.py has the same with
numpy, which takes longer for each launch than the launch itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.native import address, load
from warplens.record.block_lives import BlockLives, deflated, pack_lives
from warplens.record.capture import Launch

_TRACKS_AT_ONCE = 1 << 14
"""What one thread ranks at once."""
_MOST_THREADS = 16
_COLUMNS = ("number", "sm", "begin", "end", "slots", "order")
_FOUND = ("blocks", "taken", "written", "lost", "sms")
_GIVEN = ("raw", "stride", "tracks", "capacity", "most", "counts_lives")
_LAUNCH = np.dtype([(name, np.int64) for name in (*_GIVEN, *_COLUMNS, "unfinished", *_FOUND)])
"""`ranked_t` of native/rank_blocks.c."""
_CHOICE = np.dtype(
    [("launch", np.int64), ("room", np.float64)]
    + [(name, np.int64) for name in ("kept", "target", "keep", "rows", "records", "with_records")]
)
"""`choice_t` of native/rank_blocks.c."""

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Batch:
    """Launches that were ranked together: a row for each, and the columns of their blocks."""

    rows: npt.NDArray[np.void]
    at: int
    """Their address: numpy takes long to tell that of an array with fields."""
    columns: Int
    unfinished: npt.NDArray[np.bool_]
    first: list[int]
    """Where the blocks of each launch begin."""


@dataclass(frozen=True, slots=True)
class NativeRanks:
    """What was found for one launch: blocks, the slots that they take in a trace and those that were written, slots
    that did not fit, and SMs."""

    batch: _Batch
    place: int
    stride: int
    tracks: int
    blocks: int
    taken: int
    written: int
    lost: int
    sms: int

    def __len__(self) -> int:
        return self.blocks

    @property
    def row(self) -> int:
        """The address of its row."""
        return self.batch.at + self.place * _LAUNCH.itemsize

    def _column(self, name: str) -> Int:
        first = self.batch.first[self.place]
        column: Int = self.batch.columns[_COLUMNS.index(name), first : first + self.blocks]
        return column

    @property
    def lives(self) -> BlockLives:
        return BlockLives(*map(self._column, ("number", "sm", "begin", "end")))

    def packed_lives(self) -> str:
        """What `pack_lives` makes of the lives."""
        library, planes = load(), np.empty(32 * self.blocks, np.uint8)
        if library is None:
            return pack_lives(self.lives)
        library.wl_life_planes(ctypes.c_void_p(self.row), ctypes.c_void_p(address(planes)))
        return deflated(planes)

    @property
    def slots(self) -> Int:
        """The slots that each block takes in a trace."""
        return self._column("slots")

    @property
    def order(self) -> Int:
        """The blocks in the order in which they are kept."""
        return self._column("order")

    @property
    def unfinished(self) -> npt.NDArray[np.bool_]:
        first = self.batch.first[self.place]
        return self.batch.unfinished[first : first + self.blocks]


@dataclass(frozen=True, slots=True)
class Kept:
    """The tracks of a launch that are kept, how many blocks and slots they have, and how many blocks have slots."""

    raw: npt.NDArray[np.uint8]
    blocks: int
    records: int
    with_records: int


def rank_natively(launches: Sequence[Launch], counts_lives: Sequence[bool]) -> list[NativeRanks | None]:
    """Rank the blocks of each launch; `counts_lives` says where a warp without records takes a row. None for all where
    there is no compiler, and for a launch whose headers are damaged."""
    library = load()
    if library is None or not launches:
        return [None] * len(launches)
    rows = np.zeros(len(launches), _LAUNCH)
    flat = [launch.raw.flags.c_contiguous for launch in launches]
    tracks = np.array([launch.tracks if whole else 0 for launch, whole in zip(launches, flat, strict=True)], np.int64)
    rows["tracks"] = tracks
    rows["most"] = most = np.minimum(tracks, [launch.blocks for launch in launches])
    rows["raw"] = [address(launch.raw) for launch in launches]
    rows["stride"] = [launch.stride for launch in launches]
    rows["capacity"] = [launch.capacity for launch in launches]
    rows["counts_lives"] = counts_lives
    ends = np.cumsum(most)
    first, total = ends - most, int(ends[-1])
    columns, unfinished = np.empty((len(_COLUMNS), total), np.int64), np.empty(total, bool)
    for name, column in (*zip(_COLUMNS, columns, strict=True), ("unfinished", unfinished)):
        rows[name] = address(column) + column.itemsize * first
    library.wl_rank_blocks.argtypes = ctypes.c_void_p, ctypes.c_int64

    def rank(begin: int, end: int) -> None:
        if library.wl_rank_blocks(address(rows[begin:end]), end - begin):
            raise MemoryError("no memory to rank blocks in")

    _in_parallel(rank, tracks)
    batch = _Batch(rows, address(rows), columns, unfinished, first.tolist())
    found = zip(*(rows[name].tolist() for name in ("stride", "tracks", *_FOUND)), strict=True)
    made = [NativeRanks(batch, at, *one) for at, one in enumerate(found)]
    return [one if one.blocks > 0 else None for one in made]


def keep_natively(ranked: Sequence[NativeRanks], room: Sequence[float]) -> list[Kept]:
    """Keep as many blocks of each launch as have at most `room` slots together, one at least."""
    if not ranked:
        return []
    library = load()
    assert library is not None, "launches were ranked in C"
    rows = np.zeros(len(ranked), _CHOICE)
    stride, tracks = (np.array([getattr(one, name) for one in ranked], np.int64) for name in ("stride", "tracks"))
    blocks = np.array([one.blocks for one in ranked], np.int64)
    ends = np.cumsum(blocks)
    kept = np.empty(int(ends[-1]), np.uint8)
    rows["launch"] = [one.row for one in ranked]
    rows["room"], rows["kept"] = room, address(kept) + ends - blocks
    for work in (library.wl_choose_blocks, library.wl_keep_blocks):
        work.argtypes, work.restype = (ctypes.c_void_p, ctypes.c_int64), None

    def choose(begin: int, end: int) -> None:
        library.wl_choose_blocks(address(rows[begin:end]), end - begin)

    def copy(begin: int, end: int) -> None:
        library.wl_keep_blocks(address(rows[begin:end]), end - begin)

    _in_parallel(choose, tracks)
    sizes = rows["rows"] * stride
    until = np.cumsum(sizes)
    raw = np.empty(int(until[-1]), np.uint8)
    rows["target"] = address(raw) + until - sizes
    _in_parallel(copy, tracks)
    parts = zip((until - sizes).tolist(), until.tolist(), strict=True)
    found = zip(*(rows[name].tolist() for name in ("keep", "records", "with_records")), strict=True)
    return [Kept(raw[begin:end], *one) for (begin, end), one in zip(parts, found, strict=True)]


def _in_parallel(work: Callable[[int, int], None], tracks: Int) -> None:
    """Call `work` on ranges of launches with about equally many tracks."""
    upto = np.cumsum(tracks)
    parts = int(upto[-1]) // _TRACKS_AT_ONCE + 1
    cuts = np.searchsorted(upto, np.linspace(0, upto[-1], parts + 1)[1:-1]).tolist()
    edges = [0, *cuts, len(tracks)]
    threads = min(os.cpu_count() or 1, _MOST_THREADS, parts)
    if threads == 1:
        work(0, len(tracks))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))
