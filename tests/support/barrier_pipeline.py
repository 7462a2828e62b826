"""The warp-specialised pipeline of benchmarks/kernels/pipeline.cu, woven and run in the interpreter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.support.golden_ptx import GOLDEN
from warplens import simulate
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.record.capture import Capture, Device, Launch
from warplens.simulate.async_barriers import Completion
from warplens.trace.model import Trace
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving, capacity_of, shift_for

TILE, WARPS = 256, 4


@dataclass(frozen=True)
class PipelineRun:
    """The trace of a run, the sums it computed and should have, and which warps completed which phases."""

    trace: Trace
    sums: np.ndarray
    expected: np.ndarray
    completions: tuple[Completion, ...]


def run_pipeline(
    *, blocks: int = 2, tiles: int = 10, work: int = 20, auto: str | bool = True, how: Weaving | None = None
) -> PipelineRun:
    how = how or Weaving()
    marked = mark_ptx((GOLDEN / "nvcc_pipeline_lineinfo.ptx").read_text(), Auto.of(auto))
    woven = weave(marked.text, buffer=SymbolBuffer(), how=how)
    data = np.random.default_rng(0).integers(0, 9, (blocks, tiles * TILE)).astype(np.float32)
    memory = simulate.GlobalMemory()
    given, out = memory.alloc(data), memory.alloc(np.zeros(blocks, np.float32))
    shift, tracks = shift_for(1024, woven.full, woven.slack), blocks * WARPS
    buffer = memory.alloc(tracks << shift, align=1 << shift)
    clock = simulate.CycleClock()
    result = simulate.run(
        woven.text, "tile_sums", blocks, 32 * WARPS, [given, out, tiles, work], memory=memory, clock=clock,
        symbols={"warplens_buffer": buffer | shift},
    )  # fmt: skip
    launch = Launch(
        "tile_sums", (blocks, 1, 1), (32 * WARPS, 1, 1), woven.regions, capacity_of(shift, woven.full, woven.slack),
        memory.read(buffer, np.uint8, tracks << shift), full=woven.full, clock="simulated", stride=1 << shift,
    )  # fmt: skip
    trace = decode(Capture([launch], Device(clock_mhz=clock.mhz, sm_count=clock.sms)))
    return PipelineRun(trace, memory.read(out, np.float32, blocks), data.sum(axis=1), result.completions)
