"""Weave PTX, run it in the interpreter and decode what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from warplens import simulate
from warplens.decode import decode
from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import BETWEEN, Capture, Dim3, Launch
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.simulate import step_blocks
from warplens.trace.model import Trace
from warplens.weave.weaver import weave
from warplens.weave.weaving import ParamBuffer, Weaving, capacity_of, shift_for

WORK = {"fma": 4, "mul": 3, "xor": 7, "ex2": 16, "mma": 32, "shfl": 24, "bar": 20, "popc": 8, "div": 40, "rem": 40}
"""Instructions that no weaving adds to a kernel, and their cycles."""


def count_only_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the kernel's own instructions take time, so that every weaving measures the same durations."""
    cost: Callable[..., int] = lambda opcode, modifiers: 0 if "warp" in modifiers else WORK.get(opcode, 0)  # noqa: E731
    monkeypatch.setattr(step_blocks, "issue_cycles", cost)
    monkeypatch.setattr(simulate.CycleClock, "global_latency", lambda clock, warp, load: np.zeros(len(warp), np.int64))


def traced(
    text: str,
    entry: str,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Any],
    how: Weaving,
    memory: simulate.GlobalMemory | None = None,
    *,
    slots: int = 4096,
    shared: int = 0,
) -> tuple[Trace, Launch]:
    """The trace of one launch; the buffer's pointer is the last argument."""
    woven = weave(text, buffer=ParamBuffer(-1), how=how)
    layout = woven.aggregates.get(entry)
    memory = memory or simulate.GlobalMemory(64 << 20)
    shift = shift_for(layout.slots if layout else slots, "stop", woven.slack)
    warps = -(-block[0] * block[1] * block[2] // 32)
    tracks = how.select.blocks_of(grid[0] * grid[1] * grid[2]) * how.select.tracks_per_block(warps)
    base = memory.alloc((tracks + 1) << shift, align=1 << shift)
    memory.write(base + (tracks << shift), np.full(1 << shift, 0xAB, np.uint8))
    simulate.run(woven.text, entry, grid, block, [*args, base | shift], memory=memory, shared=shared)
    assert (memory.read(base + (tracks << shift), np.uint8, 1 << shift) == 0xAB).all(), "wrote past the last track"
    capacity = min(capacity_of(shift, "stop", woven.slack), layout.slots if layout else slots)
    rows = memory.read(base, np.uint8, tracks << shift).reshape(tracks, 1 << shift)
    raw = np.zeros((tracks, track_stride(capacity)), np.uint8)
    used = HEADER_BYTES + capacity * SLOT_BYTES
    raw[:, :used] = rows[:, :used]
    extra: dict[str, Any] = {AGGREGATE: layout.describe()} if layout else {BETWEEN: woven.between.get(entry, [])}
    launch = Launch(
        entry, grid, block, woven.regions, capacity, raw.reshape(-1), clock="simulated", extra=extra,
        locations=woven.locations,
    )  # fmt: skip
    return decode(Capture([launch])), launch
