"""A dataset of any size, made of numpy: `outer{ load, mma{ inner } }` over and over on every warp of every rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.trace.arrays import dictionary_array, to_arrow
from warplens.trace.io import save_rank
from warplens.trace.model import Trace
from warplens.trace.schema import COLUMNS, KINDS, LaunchInfo, Meta

KERNELS = ("attention", "gemm")
REGIONS = ("outer", "load", "mma", "inner")
WARPS = 4
_SMS = 132
_CYCLES_PER_NS = 1.755
_GAP_NS = 1_000


def rank_trace(rank: int, spans: int, *, launches: int = 8, iterations: int = 128, slower: float = 1.0) -> Trace:
    """About `spans` spans of one rank, two kernels in turn; `slower` stretches every `load`."""
    rng = np.random.default_rng(rank)
    tracks = max(round(spans / (4 * iterations * launches * WARPS)), 1) * WARPS
    shape = (launches * tracks, iterations)
    load = (np.exp(rng.normal(6.0, 0.5, shape)) * slower).astype(np.int64)
    inner = rng.integers(50, 400, shape)
    mma = inner + rng.integers(20, 60, shape)
    outer = load + mma + rng.integers(10, 40, shape)
    begin = np.cumsum(outer + 5, axis=1) - outer
    starts = np.stack([begin, begin + 4, begin + 4 + load, begin + 9 + load], axis=2).reshape(len(begin), -1)
    cycles = np.stack([outer, load, mma, inner], axis=2).reshape(-1)
    lived = starts[:, -1] + 400
    per_track = starts.shape[1]
    number = np.arange(launches * tracks)
    launch, within = number // tracks, number % tracks
    length_ns = int(lived.max() / _CYCLES_PER_NS) + _GAP_NS
    row = np.arange(cycles.size)
    parents = np.tile(np.array([-1, 0, 0, 2]), cycles.size // 4)

    def spread(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.repeat(values, per_track)

    start_ns = (starts / _CYCLES_PER_NS).astype(np.int64).reshape(-1) + spread(launch * length_ns)
    region = np.tile(np.arange(4), cycles.size // 4)
    columns = {
        "rank": np.full(cycles.size, rank),
        "device": np.full(cycles.size, rank % 8),
        "launch": spread(launch),
        "kernel": spread(launch % len(KERNELS)),
        "sm": spread(within // WARPS % _SMS),
        "block": spread(within // WARPS),
        "warp": spread(within % WARPS),
        "region": region,
        "kind": np.zeros(cycles.size, np.int8),
        "depth": np.array([0, 1, 1, 2])[region],
        "parent": np.where(parents < 0, -1, row // 4 * 4 + parents),
        "start_ns": start_ns,
        "dur_ns": (cycles / _CYCLES_PER_NS).astype(np.int64),
        "start_cycle": starts.reshape(-1),
        "dur_cycles": cycles,
        "value": np.full(cycles.size, np.nan),
        "track": spread(number),
        "lane": np.zeros(cycles.size, np.int16),
        "open": np.zeros(cycles.size, bool),
        "released_by": np.full(cycles.size, -1),
    }
    names = {"kernel": KERNELS, "region": REGIONS, "kind": KINDS}
    infos = tuple(
        LaunchInfo(
            launch=at,
            kernel=KERNELS[at % len(KERNELS)],
            rank=rank,
            device=rank % 8,
            grid=(tracks // WARPS, 1, 1),
            block=(32 * WARPS, 1, 1),
            begin_ns=at * length_ns,
            end_ns=at * length_ns + int(lived[launch == at].max() / _CYCLES_PER_NS),
            tracks=tracks,
            busy_cycles=int(lived[launch == at].sum()),
            busy_ns=int(lived[launch == at].sum() / _CYCLES_PER_NS),
        )
        for at in range(launches)
    )
    table = pa.table({name: _column(columns[name], kind, names.get(name)) for name, kind in COLUMNS.items()})
    return Trace(table, Meta(launches=infos, origin_ns=1_000_000 + 50 * rank))


def _column(values: npt.NDArray[np.generic], kind: pa.DataType, names: tuple[str, ...] | None) -> pa.Array:
    if names is not None:
        return dictionary_array(values.astype(np.int32 if kind.index_type == pa.int32() else np.int8), names)
    if kind == pa.bool_():
        return to_arrow(values)
    missing = np.isnan(values) if kind == pa.float64() else None
    return to_arrow(values.astype(kind.to_pandas_dtype()), missing)


def write_dataset(folder: Path, ranks: int, spans: int, *, launches: int = 8, slower: float = 1.0) -> Path:
    """A folder with a part per rank, about `spans` spans in all."""
    for rank in range(ranks):
        save_rank(rank_trace(rank, spans // ranks, launches=launches, slower=slower), folder, rank)
    return folder
