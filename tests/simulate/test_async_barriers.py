"""mbarriers and bulk copies in the interpreter, and the edges of a woven pipeline against who truly completed what."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.barrier_pipeline import run_pipeline
from tests.support.golden_ptx import GOLDEN
from warplens import simulate
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.ptx.syntax import PtxError
from warplens.record.capture import Capture, Device, Launch
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving, capacity_of, shift_for


@pytest.mark.parametrize("store", ["auto", "now", "late", "end", "defer", "spread"])
@pytest.mark.parametrize("work", [0, 300])
def test_a_woven_pipeline_tells_who_waited_for_whom(store: str, work: int) -> None:
    run = run_pipeline(blocks=2, tiles=9, work=work, how=Weaving(store=store))
    assert run.sums.tolist() == run.expected.tolist()
    trace, edges = run.trace, run.trace.edges.to_pylist()
    assert trace.meta.losses.clean
    warp, block, start = (trace.numpy(name) for name in ("warp", "block", "start_cycle"))
    end = start + trace.numpy("dur_cycles")
    completed = {(one.block, one.address, one.phase): one for one in run.completions}
    counted: dict[tuple[int, int, int], int] = {}
    checked = 0
    for edge in sorted(edges, key=lambda edge: int(start[edge["wait_record"]])):
        assert edge["kind"] != "unknown"
        assert start[edge["arrival_record"]] <= end[edge["wait"]]
        if edge["waited_cycles"] == 0:
            continue
        place = int(block[edge["wait"]]), edge["barrier"], int(warp[edge["wait"]])
        phases = [
            phase for at, address, phase in completed if (at, address) == place[:2] and phase % 2 == edge["phase"]
        ]
        sources = {completed[place[0], place[1], phase].warp for phase in phases}
        copies = {completed[place[0], place[1], phase].by_copy for phase in phases}
        assert (edge["kind"] == "copy") in copies
        assert int(warp[edge["arrival_record"]]) in sources
        counted[place] = counted.get(place, 0) + 1
        checked += 1
    assert checked > 10


def test_every_wait_of_the_pipeline_has_an_edge_in_its_own_phase() -> None:
    """The k-th wait of a warp at a barrier is released by the arrival that completed the k-th phase."""
    run = run_pipeline(blocks=1, tiles=12, work=200)
    trace = run.trace
    warp, start = trace.numpy("warp"), trace.numpy("start_cycle")
    offset = None
    waits: dict[tuple[int, int], list[dict]] = {}
    for edge in sorted(trace.edges.to_pylist(), key=lambda edge: int(start[edge["wait_record"]])):
        waits.setdefault((edge["barrier"], int(warp[edge["wait"]])), []).append(edge)
    phases: dict[int, list] = {}
    for one in run.completions:
        phases.setdefault(one.address, []).append(one)
    for (barrier, who), mine in waits.items():
        # The first waits for an empty stage find it empty, and have no edge.
        for edge, done in zip(mine, phases[barrier], strict=False):
            assert edge["phase"] == done.phase % 2
            assert int(warp[edge["arrival_record"]]) == done.warp, (barrier, who, edge, done)
            assert (edge["kind"] == "copy") == done.by_copy
            if not done.by_copy:
                gap = done.cycle - int(start[edge["arrival_record"]])
                offset = gap if offset is None else offset
                assert abs(gap - offset) < 64
    assert {who for _, who in waits} == {0, 1, 2, 3}


def test_waits_by_token_and_block_barriers_of_a_compiled_kernel() -> None:
    """golden/ptx/gemm.cu's `bulk`: cuda::barrier with tokens instead of parities, one bulk copy, and __syncthreads."""
    marked = mark_ptx((GOLDEN / "nvcc_gemm_lineinfo.ptx").read_text(), Auto.of("all"), lambda name: name == "bulk")
    woven = weave(marked.text, buffer=SymbolBuffer())
    memory, (blocks, threads) = simulate.GlobalMemory(), (2, 96)
    data = np.arange(blocks * 256, dtype=np.float32)
    given, out = memory.alloc(data), memory.alloc(np.zeros(1, np.float32))
    shift = shift_for(512, woven.full, woven.slack)
    size = blocks * 3 << shift
    buffer = memory.alloc(size, align=1 << shift)
    simulate.run(
        woven.text, "bulk", blocks, threads, [given, out, 1], memory=memory, symbols={"warplens_buffer": buffer | shift}
    )
    assert memory.read(out, np.float32, 1)[0] == data.sum()
    launch = Launch(
        "bulk", (blocks, 1, 1), (threads, 1, 1), woven.regions, capacity_of(shift, woven.full, woven.slack),
        memory.read(buffer, np.uint8, size), stride=1 << shift, clock="simulated",
    )  # fmt: skip
    trace = decode(Capture([launch], Device(clock_mhz=1755.0)))
    region, warp = trace.spans["region"].to_pylist(), trace.numpy("warp")
    found = [
        (edge["kind"], region[edge["wait"]], int(warp[edge["wait"]]), int(warp[edge["arrival_record"]]))
        for edge in trace.edges.to_pylist()
    ]
    tokens = [("copy", "wait gemm.cu:69", waiter, 0) for waiter in range(3)] * blocks
    blocked = [("barrier", "barrier gemm.cu:61", waiter, 0) for waiter in (1, 2)] * blocks
    assert sorted(found) == sorted(tokens + blocked)


def test_a_barrier_that_was_not_initialised_is_an_error() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r<2>;\n"
        "\tmov.u32 %r1, 64;\n\tmbarrier.arrive.shared::cta.b64 _, [%r1];\n\tret;\n}\n"
    )
    with pytest.raises(PtxError, match="mbarrier at 0x40, which was not initialised"):
        simulate.run(text, "k", 1, 32, [], memory=simulate.GlobalMemory(), shared=128)


def test_a_phase_that_never_completes_ends_with_the_budget() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r<2>;\n\t.reg .pred %p;\n"
        "\tmov.u32 %r1, 64;\n\tmbarrier.init.shared::cta.b64 [%r1], 33;\n\tmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
        "W:\n\tmbarrier.try_wait.parity.shared::cta.b64 %p, [%r1], 0;\n\t@!%p bra W;\n\tret;\n}\n"
    )
    with pytest.raises(PtxError, match="did not finish"):
        simulate.run(text, "k", 1, 32, [], memory=simulate.GlobalMemory(), shared=128, max_steps=5000)


def test_a_bulk_copy_moves_its_bytes() -> None:
    run = run_pipeline(blocks=3, tiles=5, work=0)
    assert np.array_equal(run.sums, run.expected)
    assert {one.by_copy for one in run.completions} == {True, False}
