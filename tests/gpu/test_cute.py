"""CuTe DSL kernels on a real GPU: `python -m pytest tests/gpu/test_cute.py -q` with nvidia-cutlass-dsl installed."""

# ruff: noqa: E402
from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass.cute", reason="needs nvidia-cutlass-dsl")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from tests.support.paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES / "cute"))

import cutlass
import gemm
import vector_add
from cuda.bindings.driver import CUstream
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack, make_ptr

import warplens as wl
import warplens.cute as wlc
from tests.support import iket_program
from warplens.compat import nuggets

pytestmark = pytest.mark.gpu


def _vector(prof: Any, n: int = 1 << 16) -> tuple[Any, tuple[Any, ...], list[Any]]:
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.full_like(x, float("nan"))
    return vector_add.run, (*(from_dlpack(t) for t in (x, y, out)), prof), [x, y, out]


def _gemm(prof: Any, n: int = 512) -> tuple[Any, tuple[Any, ...], list[Any]]:
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.full_like(a, float("nan"))
    stream = CUstream(torch.cuda.current_stream().cuda_stream)
    return gemm.run, (*(from_dlpack(t, assumed_align=16) for t in (a, b, c)), prof, stream), [a, b, c]


@pytest.mark.parametrize("make", [_vector, _gemm])
def test_results_are_the_unmarked_kernels_bit_for_bit(make: Any) -> None:
    prof = wlc.buffer()
    run, given, arrays = make(prof)
    cute.compile(run, *given, False)(*given)
    torch.cuda.synchronize()
    expected = arrays[2].clone()
    marked = cute.compile(run, *given)
    for profiled in (True, False):
        arrays[2].fill_(float("nan"))
        if profiled:
            with wl.profile() as profile:
                marked(*given)
        else:
            marked(*given)
            torch.cuda.synchronize()
        assert torch.equal(arrays[2], expected)
    losses = profile.trace.meta.losses
    assert losses.records_lost == losses.open_spans == losses.orphan_ends == losses.tracks_without_exit == 0


@cute.kernel
def _inert_add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    """No buffer and no `wlc.kernel`: warplens weaves these marks."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    for step in cutlass.range(8, unroll=1):
        i = (block * 8 + step) * 256 + thread
        with wlc.region("load"):
            a, b = x[i], y[i]
        with wlc.region("store"):
            out[i] = a + b
        wlc.value("step", step)


@cute.jit
def _run_inert_add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    _inert_add(x, y, out).launch(grid=(cute.size(out) // 2048, 1, 1), block=(256, 1, 1))


@pytest.mark.parametrize("before", [True, False], ids=["compiled before the profile", "inside"])
def test_marks_without_a_buffer_are_woven(before: bool) -> None:
    n = 1 << 20
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.full_like(x, float("nan"))
    given = tuple(from_dlpack(t) for t in (x, y, out))
    compiled = cute.compile(_run_inert_add, *given)
    compiled(*given)
    assert torch.equal(out, x + y)
    out.fill_(float("nan"))
    with wl.profile(launches=2) as profile:
        function = compiled if before else cute.compile(_run_inert_add, *given)
        for _ in range(4):
            function(*given)
    assert torch.equal(out, x + y)
    trace = profile.trace
    assert {row.region: row.count for row in trace.stats() if row.kind == "span"} == {
        "load": 2 * n // 32, "store": 2 * n // 32,
    }  # fmt: skip
    losses = trace.meta.losses
    assert losses.records_lost == losses.open_spans == losses.orphan_ends == losses.tracks_without_exit == 0


def test_every_record_of_a_gemm_is_there() -> None:
    prof = wlc.buffer(records_per_warp=64)
    run, given, _ = _gemm(prof)
    with wl.profile() as profile:
        run(*given)  # not compiled before: the DSL traces, compiles and launches in one call
    blocks, steps = (512 // gemm.M) * (512 // gemm.N), 512 // gemm.K
    assert {row.region: row.count for row in profile.trace.stats()} == {
        "wait empty": blocks * steps, "load": blocks * steps,
        "wait full": 8 * blocks * steps, "mma": 8 * blocks * steps, "store": 8 * blocks,
    }  # fmt: skip
    assert profile.trace.meta.launches[0].kernel == "gemm"


def test_a_cached_kernel_records_in_every_profile_and_from_every_launch() -> None:
    prof = wlc.buffer()
    run, given, _ = _vector(prof)
    compiled = cute.compile(run, *given)
    compiled(*given)
    for count in (1, 20):
        with wl.profile() as profile:
            for _ in range(count):
                compiled(*given)
        assert len(profile.trace.meta.launches) == count
        assert profile.trace.stats()["load"].count == count * (1 << 16) // 32


def test_one_tensor_serves_launch_after_launch() -> None:
    tensor = torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    prof = wlc.buffer(32, 256, records_per_warp=40, tensor=tensor)
    run, given, _ = _vector(prof)
    compiled = cute.compile(run, *given)
    with wl.profile() as profile:
        compiled(*given)
        compiled(*given)
    assert profile.trace.stats()["store"].count == 2 * (1 << 16) // 32


@pytest.mark.parametrize(("make", "auto"), [(_vector, "all"), (_gemm, "all"), (_gemm, "loops,loads")])
def test_an_unmarked_kernel_is_marked_as_it_is_with_the_same_bits(make: Any, auto: str) -> None:
    """The DSL's own host code launches the woven twin, with its TMA descriptors, shared memory and attributes."""
    run, given, arrays = make(None)
    cute.compile(run, *given, False)(*given)
    torch.cuda.synchronize()
    expected = arrays[2].clone()
    with wl.profile(auto=auto, records_per_warp=4096) as profile:
        compiled = cute.compile(run, *given, False)
        for _ in range(2):
            arrays[2].fill_(float("nan"))
            compiled(*given)
            torch.cuda.synchronize()
            assert torch.equal(arrays[2], expected)
    assert [info.kernel for info in profile.trace.meta.launches] == [run.__module__] * 2, profile.notes
    assert not profile.trace.meta.losses.orphan_ends
    assert not profile.trace.meta.losses.records_lost
    if auto == "all":
        assert min(info.covered["least"] for info in profile.trace.meta.launches) >= 0.9
    arrays[2].fill_(float("nan"))
    compiled(*given)
    torch.cuda.synchronize()
    assert torch.equal(arrays[2], expected)


@pytest.mark.parametrize("own", [False, True], ids=["drop-in", "IKET's own marks"])
def test_marks_of_iket_are_recorded_with_the_same_result(own: bool, tmp_path: Path) -> None:
    program = iket_program.load(tmp_path, *([(iket_program.DROP_IN, iket_program.REAL)] if own else []))
    values = torch.arange(iket_program.N, device="cuda", dtype=torch.float32)
    y = make_ptr(Float32, values.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
    given = y, iket_program.STEPS
    with wl.profile(records_per_warp=256) as profile:
        cute.compile(program.run, *given, **({"options": "iket"} if own else {}))(*given)
        torch.cuda.synchronize()
    iket_program.check_trace(profile.trace)
    assert values.tolist() == iket_program.expected(np.arange(iket_program.N)).tolist()


def test_nuggets_own_example_runs(tmp_path: Path) -> None:
    from tests.support import nuggets_seed

    events = nuggets_seed.main(torch, torch.zeros(512, device="cuda"), tmp_path / "trace.json")
    assert Counter((event.tag_name, event.tid) for event in events) == {
        **{("outer", block): 1 for block in range(4)},
        **{("inner", block): 4 for block in range(4)},
    }
    assert len(nuggets.to_trace(events)) == 20
