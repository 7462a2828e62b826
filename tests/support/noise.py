"""Traces of one kernel as a GPU would repeat them: the noise is shared by run, launch, SM and block, not just white."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from warplens.trace.model import Trace
from warplens.trace.schema import COLUMNS, KINDS, ClockFit, LaunchInfo, Meta


@dataclass(frozen=True)
class Kernel:
    """Regions by name: median cycles, and whether their time is memory's (fixed in ns) or the SM's (in cycles)."""

    regions: dict[str, tuple[float, bool]] = field(
        default_factory=lambda: {
            "load": (900.0, True),
            "mma": (600.0, False),
            "store": (200.0, True),
            "tiny": (24.0, False),
        }
    )
    blocks: int = 132
    warps: int = 2
    rounds: int = 6
    launches: int = 8
    clock_noise: float = 0.04
    launch_noise: float = 0.004
    sm_noise: float = 0.01
    block_noise: float = 0.02
    span_noise: float = 0.12
    outliers: float = 0.005
    drift: float = 0.03


def run(kernel: Kernel, seed: int, *, slower: dict[str, float] | None = None) -> Trace:
    """One run of the kernel; `slower` multiplies regions' durations."""
    rng = np.random.default_rng(seed)
    names = list(kernel.regions)
    shape = (kernel.launches, kernel.blocks, kernel.warps, kernel.rounds, len(names))
    launch, block, warp, turn, region = (axis.ravel() for axis in np.indices(shape))
    mhz = 1900 * (1 - kernel.clock_noise * rng.random())
    median = np.array([kernel.regions[name][0] for name in names])
    memory = np.array([kernel.regions[name][1] for name in names])
    factor = np.array([(slower or {}).get(name, 1.0) for name in names])
    cycles = (median * factor * np.where(memory, mhz / 1900, 1.0))[region]
    for share, of in ((kernel.launch_noise, launch), (kernel.block_noise, launch * kernel.blocks + block)):
        cycles = cycles * np.exp(share * rng.standard_normal(int(of.max()) + 1))[of]
    # SMs differ a little from each other, always in the same way, but blocks land on others from launch to launch.
    sm = (block + np.array(rng.integers(0, 132, kernel.launches))[launch]) % 132
    cycles = cycles * np.exp(kernel.sm_noise * np.random.default_rng(99).standard_normal(132))[sm]
    cycles = cycles * (1 + kernel.drift * turn / kernel.rounds)
    cycles = cycles * np.exp(kernel.span_noise * rng.standard_normal(len(cycles)))
    cycles = np.where(memory[region] & (rng.random(len(cycles)) < kernel.outliers), 3 * cycles, cycles)
    cycles = np.maximum(cycles, 1).astype(np.int64)
    per_track = kernel.rounds * len(names)
    ends = np.cumsum((cycles + 20).reshape(-1, per_track), axis=1)
    start = (ends - cycles.reshape(-1, per_track)).ravel() + launch * 10_000_000
    start_ns, end_ns = (np.rint(x * 1000 / mhz).astype(np.int64) for x in (start, start + cycles))
    tracks = np.repeat(np.arange(len(cycles) // per_track), per_track)
    zeros = np.zeros(len(cycles), np.int64)
    values = {
        "rank": zeros, "device": zeros, "launch": launch, "kernel": zeros, "sm": sm, "block": block, "warp": warp,
        "region": region, "kind": zeros, "depth": zeros, "parent": zeros - 1, "start_ns": start_ns,
        "dur_ns": end_ns - start_ns, "start_cycle": start, "dur_cycles": cycles, "track": tracks, "lane": zeros,
        "released_by": zeros - 1,
    }  # fmt: skip
    words = {"kernel": ["kernel"], "region": names, "kind": list(KINDS)}
    columns = {}
    for name, kind in COLUMNS.items():
        if name in words:
            index = pa.array(values[name].astype(kind.index_type.to_pandas_dtype()))
            columns[name] = pa.DictionaryArray.from_arrays(index, pa.array(words[name]))
        elif name == "value":
            columns[name] = pa.nulls(len(cycles), kind)
        elif name == "open":
            columns[name] = pa.array(np.zeros(len(cycles), bool))
        else:
            columns[name] = pa.array(values[name].astype(kind.to_pandas_dtype()))
    last = np.full(kernel.launches, 0)
    first = np.full(kernel.launches, np.iinfo(np.int64).max)
    np.maximum.at(last, launch, end_ns)
    np.minimum.at(first, launch, start_ns)
    infos = tuple(
        LaunchInfo(
            n,
            "kernel",
            grid=(kernel.blocks, 1, 1),
            block=(32 * kernel.warps, 1, 1),
            begin_ns=int(first[n]),
            end_ns=int(last[n]),
        )
        for n in range(kernel.launches)
    )
    clock = ClockFit(residual_p99_ns=12.0, mhz_min=mhz, mhz_mean=mhz, mhz_max=mhz, method="anchors")
    return Trace(pa.table(columns), Meta(launches=infos, devices={"0": {"sm_count": 132}}, clock=clock))
