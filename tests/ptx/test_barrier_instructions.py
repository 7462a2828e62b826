"""What instructions do with barriers, from their text."""

from __future__ import annotations

import pytest

from warplens.ptx.barrier_instructions import BarrierUse, barrier_use
from warplens.ptx.tree import parse

CASES = {
    "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;": BarrierUse("wait", "%r1", parity="%r2", done="%p1"),
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+8], 1, %r3;": BarrierUse(
        "wait", "%r1", 8, parity="1", done="%p1"
    ),
    "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd3;": BarrierUse("wait_state", "%r1", done="%p1"),
    "mbarrier.arrive.shared::cta.b64 _, [%r1];": BarrierUse("arrive", "%r1"),
    "mbarrier.arrive.b64 %rd1, [%rd2];": BarrierUse("arrive", "%rd2", generic=True),
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 32768;": BarrierUse("copy", "%r1"),
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 1;": BarrierUse("remote_arrive", "%r1"),
    "mbarrier.init.shared.b64 [%r1], 1;": None,
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];":
        BarrierUse("copy", "%r4"),
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [buffer+16];":
        BarrierUse("copy", "buffer", 16),
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], "
    "[%rd1, {%r2, %r3}], [%r4], %rs1;": BarrierUse("multicast", "%r4", mask="%rs1"),
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];": None,
    "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];": BarrierUse("copy", "%r1"),
    "bar.sync 0;": BarrierUse("sync", "0"),
    "bar.sync 1, 64;": BarrierUse("sync", "1", threads="64"),
    "barrier.cta.sync.aligned %r1, 64;": BarrierUse("sync", "%r1", threads="64"),
    "bar.arrive 2, 128;": BarrierUse("named_arrive", "2", threads="128"),
    "bar.red.popc.u32 %r1, 3, %p1;": BarrierUse("sync", "3"),
    "bar.warp.sync -1;": None,
    "barrier.cluster.arrive.aligned;": BarrierUse("cluster_arrive", ""),
    "barrier.cluster.wait.aligned;": BarrierUse("cluster_wait", ""),
    "ld.shared.b32 %r1, [%r2];": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.items(), ids=[text.split()[0] for text in CASES])
def test_an_instructions_barrier(text: str, expected: BarrierUse | None) -> None:
    module = parse(f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n\t{text}\n\tret;\n}}\n")
    instruction = next(module.entries[0].instructions())
    assert barrier_use(instruction) == expected
