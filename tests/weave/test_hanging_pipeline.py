"""A woven pipeline that hangs in the interpreter: its records say which warps wait for whom."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden_ptx import GOLDEN
from warplens import simulate
from warplens.analyse.hang import hang_lines, hangs
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.launch.weaving_options import weaving
from warplens.options import Options
from warplens.record.capture import HANG, Capture, Device, Launch
from warplens.record.layout import HEADER
from warplens.record.running_tracks import HangRecord, pack_tracks
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, capacity_of, shift_for

TILE, WARPS, BLOCKS, TILES = 256, 4, 2, 10
ARRIVAL = "\tmbarrier.arrive.shared::cta.b64 _, [%r102];\n"
LOST_IN_BLOCK_1 = f"""\
	{{
	.reg .pred kept;
	.reg .b32 number;
	mov.u32 number, %ctaid.x;
	setp.ne.u32 kept, number, 1;
	@kept {ARRIVAL.strip()}
	}}
"""


def test_lost_arrivals_of_one_block_are_named_with_their_barrier_and_phase() -> None:
    text = (GOLDEN / "nvcc_pipeline_lineinfo.ptx").read_text()
    assert text.count(ARRIVAL) == 1
    marked = mark_ptx(text.replace(ARRIVAL, LOST_IN_BLOCK_1), Auto.of(True))
    woven = weave(marked.text, buffer=SymbolBuffer(), how=weaving(Options(watch=30)))
    memory = simulate.GlobalMemory()
    given, out = memory.alloc(np.ones((BLOCKS, TILES * TILE), np.float32)), memory.alloc(np.zeros(BLOCKS, np.float32))
    shift, tracks = shift_for(1024, woven.full, woven.slack), BLOCKS * WARPS
    buffer = memory.alloc(tracks << shift, align=1 << shift)
    with pytest.raises(WarplensError):  # it would never end
        simulate.run(
            woven.text, "tile_sums", BLOCKS, 32 * WARPS, [given, out, TILES, 20], memory=memory,
            symbols={"warplens_buffer": buffer | shift}, max_steps=40_000,
        )  # fmt: skip
    raw = memory.read(buffer, np.uint8, tracks << shift)
    headers = np.ndarray(tracks, HEADER, raw, strides=(1 << shift,))
    running = headers[headers["state"] == 0]
    assert set(running["block"].tolist()) == {1}, "block 0 has ended"
    places = zip(running["block"].tolist(), running["warp"].tolist(), strict=True)
    record = HangRecord(pack_tracks(places), tracks - len(running), 0, 10**9, 30.0, "watch")
    launch = Launch(
        "tile_sums", (BLOCKS, 1, 1), (32 * WARPS, 1, 1), woven.regions, capacity_of(shift, woven.full, woven.slack),
        raw, clock="simulated", stride=1 << shift, extra={HANG: record.to_json()},
    )  # fmt: skip
    (hang,) = hangs(decode(Capture([launch], Device(clock_mhz=1000.0, sm_count=4))))
    missing = {tuple(group.warps): group.wait for group in hang.groups}
    producer, consumers = missing[("0",)], missing[("1-3",)]
    assert producer is not None
    assert consumers is not None
    assert (producer.missing, producer.phase) == ((1, 2, 3), 0), "the consumers never said that a stage is empty"
    assert (consumers.missing, consumers.phase) == ((0,), 1)
    assert producer.barrier != consumers.barrier
    assert any("warps 1-3 have not arrived" in line for line in hang_lines(hang))
