"""What the modes and the drop-ins put into kernels is taken by ptxas, without spills or new warnings."""

from __future__ import annotations

from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

from tests.support.triton_examples import Job, assemble, jobs  # noqa: E402
from warplens.compat.sm_profiler.triton_ops import (  # noqa: E402
    profiler_event_end,
    profiler_event_instant,
    profiler_event_start,
    profiler_init,
)
from warplens.compat.triton_dist import Profiler, tid  # noqa: E402
from warplens.weave.weaver import weave  # noqa: E402
from warplens.weave.weaving import SharedBuffer, Weaving  # noqa: E402

CAPABILITIES = (80, 90, 100)


@triton.jit
def with_sm_profiler(buffer, x, y, steps, BLOCK: tl.constexpr):
    ctx = profiler_init(buffer)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for step in range(steps):
        profiler_event_start(ctx, tl.program_id(0), 0, 1)
        tl.store(y + offsets, tl.load(x + offsets) + step)
        profiler_event_end(ctx, tl.program_id(0), 0, 1)
    profiler_event_instant(ctx, tl.program_id(0), 0, 2)


@triton.jit
def with_triton_dist(buffer, x, y, steps, BLOCK: tl.constexpr):
    profiler = Profiler.create(buffer, group_id=0, num_groups=1, is_leader=(tid(0) == 0))
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for step in range(steps):
        profiler = profiler.record(is_start=True, task_type=step)
        tl.store(y + offsets, tl.load(x + offsets) + step)
        profiler = profiler.record(is_start=False, task_type=step)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", [with_sm_profiler, with_triton_dist])
def test_records_that_kernels_store_themselves(capability: int, kernel: Any) -> None:
    signature = {"buffer": "*i64", "x": "*fp32", "y": "*fp32", "steps": "i32"}
    text = Job(kernel, signature, {"BLOCK": 256}, {}).compile(capability).asm["ptx"]
    made = assemble(text, capability)
    assert made.spills == 0
    assert made.warnings == ()


@pytest.mark.parametrize("how", [
    pytest.param(Weaving(clock="64"), id="64"),
    pytest.param(Weaving(clock="64", full="ring"), id="64-ring"),
    pytest.param(Weaving(shared=SharedBuffer(256, 65536)), id="shared"),
    pytest.param(Weaving(shared=SharedBuffer(256, 65536), full="ring"), id="shared-ring"),
    pytest.param(Weaving(shared=SharedBuffer(256, 65536), clock="64"), id="shared-64"),
])  # fmt: skip
@pytest.mark.parametrize(("capability", "name"), [
    (80, "vector_add"), (80, "attention"), (90, "softmax"), (90, "matmul"), (90, "specialised_matmul"),
    (100, "vector_add"), (100, "softmax"),
])  # fmt: skip
def test_every_mode_assembles(capability: int, name: str, how: Weaving) -> None:
    text = next(job for job in jobs(capability) if job.name == name).marked_ptx(capability)
    plain, made = assemble(text, capability), assemble(weave(text, how=how).text, capability)
    assert made.spills <= plain.spills
    assert made.warnings == plain.warnings


def test_scopes_of_blocks_that_take_over_the_work_of_others() -> None:
    """Blocks of Blackwell that cancel others before they start (cluster launch control), as in Proton's own tests."""
    pytest.importorskip("triton.experimental.gluon.language.nvidia.blackwell.clc", reason="triton 3.6 has no such API")
    from tests.support.proton_clc_kernel import taking_over

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32"}
    job = Job(taking_over, signature, {"BLOCK": 256}, {"num_warps": 4})
    assert "clusterlaunchcontrol.try_cancel" in job.marked_ptx(100)
    plain, made = job.woven(100, Weaving())
    assert made.resources.spills <= plain.spills
    assert made.resources.warnings == plain.warnings
    assert not made.harm
