"""Marks in CuTe DSL kernels: what they record, from whom, through caches, and what they leave when off."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.cute_gpu import Gpu, compile_cute, install

# isort: split
from cutlass import Int32, Int64, cute

import warplens as wl
import warplens.cute as wlc
from tests.support.cute_kernels import (
    BLOCKS,
    THREADS,
    N,
    Scale,
    fake,
    run_add,
    run_counted,
    run_everything,
    run_roles,
    run_values,
)
from tests.support.paths import SUPPORT
from warplens import installed, simulate
from warplens.errors import UsageError, WarplensError
from warplens.frontends.cute import record_ptx as cute_ptx
from warplens.frontends.cute.requirement import require_cute
from warplens.ptx import tree


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return install(monkeypatch)


def _everything(gpu: Gpu, prof: Any, steps: int = 3) -> tuple[Any, Any, int]:
    compiled = compile_cute(run_everything, fake(), fake(), Int32(1000), Int32(steps), prof)
    x, y = gpu.array(np.arange(N, dtype=np.float32)), gpu.array(np.zeros(N, np.float32))
    gpu.attach(compiled, BLOCKS, THREADS, [x, y, 1000, steps])
    return compiled, lambda: compiled(fake(), fake(), Int32(1000), Int32(steps), prof), y


def test_a_kernel_leaves_the_records_its_marks_ask_for_in_order(gpu: Gpu) -> None:
    _, launch, y = _everything(gpu, wlc.buffer())
    with wl.profile() as profile:
        launch()
    x = np.arange(N, dtype=np.float32)
    np.testing.assert_allclose(gpu.read(y, np.float32, N), 3 * 2 * x * (np.arange(N) < 1000) + 2 * 3 * x)
    trace = profile.trace
    # Two slots for a value and for an anchor, one for the others.
    per_warp = 3 * (2 + 2 + 2) + 2 * 4 + 2 + 2 + 2 + 1 + 2
    assert trace.meta.losses.records_written == per_warp * BLOCKS * 4
    assert trace.meta.losses.records_lost == trace.meta.losses.open_spans == trace.meta.losses.orphan_ends == 0
    rows = trace.select(block=5, warp=2).spans.to_pylist()
    seen = [(row["region"], row["kind"], row["depth"]) for row in rows]
    even = [("even", "span", 0), ("helper", "span", 1)]
    step = [("flight", "span", 0), ("k", "value", 0)]
    first = [("flight", "span", 0), ("load", "span", 0)]
    assert seen == [
        *first, *even, *step, ("load", "span", 0), *step, ("load", "span", 0), *even, *step,
        ("total", "value", 0), ("before", "instant", 0), ("store", "span", 0),
    ]  # fmt: skip
    assert [row["value"] for row in rows if row["region"] == "k"] == [0, 1, 2]
    total = [row["value"] for row in rows if row["region"] == "total"]
    assert total == [gpu.read(y, np.float32, N)[5 * THREADS + 64]]
    assert {(row["block"], row["warp"]) for row in trace.spans.to_pylist()} == {
        (block, warp) for block in range(BLOCKS) for warp in range(THREADS // 32)
    }
    (launch_meta,) = trace.meta.launches
    assert (launch_meta.kernel, tuple(launch_meta.grid), tuple(launch_meta.block)) == (
        "everything",
        (8, 1, 1),
        (128, 1, 1),
    )


def test_each_warp_of_a_specialised_kernel_records_its_own_role(gpu: Gpu) -> None:
    prof, steps, x = wlc.buffer(), 4, np.arange(N, dtype=np.float32)
    compiled = compile_cute(run_roles, fake(), fake(), Int32(steps), prof)
    y = gpu.array(np.zeros(N, np.float32))
    gpu.attach(compiled, 1, THREADS, [gpu.array(x), y, steps])
    with wl.profile() as profile:
        compiled(fake(), fake(), Int32(steps), prof)
    sums = x[: 32 * steps].reshape(steps, 32).sum(axis=0)
    np.testing.assert_array_equal(gpu.read(y, np.float32, N)[512 + 32 : 512 + THREADS], np.tile(sums, 3))
    seen = Counter((row["warp"], row["region"]) for row in profile.trace.spans.to_pylist())
    assert seen == {(0, "produce"): steps} | {
        (warp, name): count for warp in (1, 2, 3) for name, count in (("consume", steps), ("sum", 1))
    }
    losses = profile.trace.meta.losses
    assert losses.records_lost == losses.open_spans == losses.orphan_ends == losses.tracks_without_exit == 0


def test_values_of_every_kind_arrive_as_they_are(gpu: Gpu) -> None:
    prof = wlc.buffer()
    compiled = compile_cute(run_values, fake(), Int32(5), prof)
    gpu.attach(compiled, 1, 32, [gpu.array(np.zeros(N, np.float32)), 5])
    with wl.profile() as profile:
        compiled(fake(), Int32(5), prof)
    assert {row["region"]: row["value"] for row in profile.trace.spans.to_pylist()} == {
        "negative": -5, "unsigned": 2**32 - 5, "byte": -5, "unsigned byte": 251, "wide": -5_000_000_000, "condition": 1,
        "half": 2.5, "constant": 7, "fraction": 0.25,
    }  # fmt: skip


def test_names_come_with_the_line_they_were_marked_at(gpu: Gpu) -> None:
    _, launch, _ = _everything(gpu, wlc.buffer())
    with wl.profile() as profile:
        launch()
    lines = (SUPPORT / "cute_kernels.py").read_text().splitlines()
    where = profile.trace.meta.locations
    for name, mark in {"load": 'wlc.region("load")', "store": 'wlc.begin("store")', "k": 'wlc.value("k", k)'}.items():
        file, _, line = where[name].rpartition(":")
        assert file.endswith("cute_kernels.py")
        assert mark in lines[int(line) - 1]


def test_a_mark_after_a_barrier_holds_its_clock_read_back(gpu: Gpu) -> None:
    compiled, _, _ = _everything(gpu, wlc.buffer())
    barrier = re.search(r"\n\s*bar(?:rier)?\.\S+\s+0;(.*?)%clock", compiled.__ptx__, re.DOTALL)
    assert barrier is not None
    assert "bar.warp.sync 0xffffffff;" in barrier[1]
    assert compiled.__ptx__.count("bar.warp.sync") == 1


def test_one_compile_serves_many_launches_and_profiles(gpu: Gpu) -> None:
    prof = wlc.buffer(BLOCKS, THREADS)
    compiled, launch, _ = _everything(gpu, prof)
    launch()
    for count in (1, 3):
        with wl.profile() as profile:
            for _ in range(count):
                launch()
        assert profile.trace.stats()["load"].count == count * 3 * BLOCKS * 4
        assert len(profile.trace.meta.launches) == count
    # A buffer the kernel was not compiled with works as well.
    other = wlc.buffer(records_per_warp=64)
    with wl.profile() as profile:
        compiled(fake(), fake(), Int32(1000), Int32(3), other)
    assert profile.trace.stats()["load"].count == 3 * BLOCKS * 4
    assert gpu.launches == 6


def test_every_and_launches_choose_among_the_launches_of_a_kernel(gpu: Gpu) -> None:
    _, launch, _ = _everything(gpu, wlc.buffer())
    with wl.profile(every=2, launches=2) as profile:
        for _ in range(7):
            launch()
    assert len(profile.trace.meta.launches) == 2


@pytest.mark.parametrize(
    ("how", "warps", "lane"),
    [
        ({}, {0, 1, 2, 3}, 0),
        ({"warps": 2}, {2}, 0),
        ({"warps": (1, 3)}, {1, 3}, 0),
        ({"leader": "warp0"}, {0}, 0),
        ({"leader": "elected"}, {0, 1, 2, 3}, 0),
        (lambda thread: {"leader": thread >= 37}, {1, 2, 3}, None),
        (lambda thread: {"leader": thread >= 37, "warps": 1}, {1}, 5),
    ],
)
@pytest.mark.parametrize("full", ["stop", "ring"])
def test_the_chosen_leaders_record_and_no_other(
    gpu: Gpu, how: Any, warps: set[int], lane: int | None, full: str
) -> None:
    chosen = (lambda thread: {**how(thread), "full": full}) if callable(how) else {**how, "full": full}
    prof = wlc.buffer()
    compiled = compile_cute(run_counted, fake(), chosen, prof)
    gpu.attach(compiled, (2, 3), (32, 4), [gpu.array(np.zeros(N, np.float32))])
    with wl.profile(full=full) as profile:
        compiled(fake(), prof)
    spans = profile.trace.spans.to_pylist()
    assert {(row["block"], row["warp"]) for row in spans} == {(block, warp) for block in range(6) for warp in warps}
    assert len(spans) == 6 * len(warps) * 10
    if lane is not None:
        assert {int(value) for value in profile.trace.spans.column("lane").to_pylist()} == {lane}


@pytest.mark.parametrize("full", ["stop", "ring"])
@pytest.mark.parametrize("records", [0, 1, 2, 7, 16, 19, 20, 32])
def test_a_full_track_keeps_what_fits_and_counts_the_rest(gpu: Gpu, full: str, records: int, capsys: Any) -> None:
    prof = wlc.buffer((2, 3), (32, 4), records_per_warp=records)
    compiled = compile_cute(run_counted, fake(), {"full": full}, prof)
    gpu.attach(compiled, (2, 3), (32, 4), [gpu.array(np.zeros(N, np.float32))])
    refused = pytest.raises(WarplensError, match="raise records_per_warp") if not records else nullcontext()
    with refused, wl.profile(full=full) as profile:
        compiled(fake(), prof)
    losses = profile.trace.meta.losses
    assert losses.records_written == 6 * 4 * 20
    # Each step leaves a begin, an end, and a value's pair, which is kept whole or not at all.
    room = min(records, 20) - (records < 20 and records % 4 == 3)
    if full == "ring":
        room = 0 if not records else min(20, 1 << (records - 1).bit_length())
    assert losses.records_lost == 6 * 4 * (20 - room)
    kinds = profile.trace.spans.column("kind").to_pylist()
    assert set(kinds) <= {"span", "value"}
    assert not losses.torn_payloads or full == "ring"


def test_a_count_of_losses_ends_instead_of_wrapping_into_room(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after 2^31 records of one warp, with a count that ends after eight."""
    monkeypatch.setattr(cute_ptx, "_FULL", 8)
    prof = wlc.buffer((2, 3), (32, 4), records_per_warp=7)
    compiled = compile_cute(run_counted, fake(), {}, prof)
    gpu.attach(compiled, (2, 3), (32, 4), [gpu.array(np.zeros(N, np.float32))])
    with wl.profile() as profile:
        compiled(fake(), prof)
    losses = profile.trace.meta.losses
    assert losses.records_written == 6 * 4 * (7 + 8)
    assert losses.tracks_without_exit == 0
    assert profile.trace.stats()["step"].count == 6 * 4 * 2


def test_two_kernels_on_one_buffer_are_an_error_not_a_mixture(gpu: Gpu, capsys: Any) -> None:
    prof = wlc.buffer()
    compiled = compile_cute(run_counted, fake(), {}, prof)
    gpu.attach(compiled, (2, 3), (32, 4), [gpu.array(np.zeros(N, np.float32))])
    once = compiled._default_executor.capi_func

    def twice(exe_args: Any) -> None:
        once(exe_args)
        once(exe_args)

    compiled._default_executor.capi_func = twice
    with pytest.raises(WarplensError, match="two kernels of one call wrote to the same wlc.buffer"), wl.profile():
        compiled(fake(), prof)


def test_a_buffer_too_small_for_the_launch_says_what_to_give(gpu: Gpu) -> None:
    prof = wlc.buffer(1, 32)
    compiled = compile_cute(run_counted, fake(), {}, prof)
    gpu.attach(compiled, (2, 3), (32, 4), [gpu.array(np.zeros(N, np.float32))])
    with pytest.raises(
        WarplensError, match=r"more warps than its buffer has tracks .*\(2, 3, 1\).*give wlc.buffer the grid"
    ):
        with wl.profile():
            compiled(fake(), prof)


@pytest.mark.parametrize("by", ["enabled=False", "WARPLENS=0"])
def test_off_leaves_the_kernel_as_it_was_without_marks(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_cute(run_add, fake(), fake(), fake(), None, wlc.buffer())
    on = compile_cute(run_add, fake(), fake(), fake(), True, wlc.buffer())
    if by == "WARPLENS=0":
        monkeypatch.setenv("WARPLENS", "0")
    off = compile_cute(run_add, fake(), fake(), fake(), by == "WARPLENS=0", wlc.buffer())

    def body(compiled: Any) -> str:
        return re.sub(r"kernel_cutlass_\w+|\t\.loc.*", "kernel", compiled.__ptx__)

    assert body(off) == body(plain)
    assert body(on) != body(plain)
    assert "%clock" not in off.__ptx__


def test_begins_and_ends_stand_where_the_source_has_them_in_ptx() -> None:
    compiled = compile_cute(run_add, fake(), fake(), fake(), True, wlc.buffer())
    order = re.findall(
        r"ld\.global\.(?:b|f)32|st\.global\.(?:b|f)32\s|%clock;|@f\d st\.global\.cs\.v2", compiled.__ptx__
    )
    shown = "".join(
        "L" if "ld" in found else "c" if "clock" in found else "R" if "@f" in found else "S" for found in order
    )
    # A begin reads the clock; an end reads it and stores both.
    assert re.search(r"cLLcRRcScRR", shown)


def _kernels() -> dict[str, Any]:
    """One kernel per mistake, and the message it must give."""
    from tests.support.cute_mistakes import MISTAKES

    return MISTAKES


@pytest.mark.parametrize("name", sorted(_kernels()))
def test_mistakes_are_told_while_the_kernel_is_traced(name: str) -> None:
    kernel, message = _kernels()[name]
    prof = wlc.buffer()

    @cute.jit
    def run(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
        kernel(x, n, prof).launch(grid=[1, 1, 1], block=[32, 1, 1])

    with pytest.raises(UsageError, match=message):
        cute.compile(run, fake(), Int32(3), prof)


class _Memory:
    """As much of a torch tensor as wlc.buffer looks at."""

    def __init__(self, count: int, dtype: str = "torch.int64", device: str = "cuda:0", address: int = 4096) -> None:
        self.shape, self.dtype, self.device, self.address = (count,), dtype, device, address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "strides": None}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wlc.buffer(tensor=_Memory(4096, "torch.float32")), "dtype float32; it must be int64"),
        (lambda: wlc.buffer(tensor=_Memory(4096, device="cpu")), "is on cpu; it must be on the GPU"),
        (lambda: wlc.buffer(tensor=np.zeros(64)), "is on ndarray|is on cpu; it must be on the GPU"),
        (
            lambda: wlc.buffer(8, 128, tensor=_Memory(64), records_per_warp=9),
            "has 512 bytes and needs .* for this grid",
        ),
        (lambda: wlc.buffer(tensor=_Memory(64)), "needs .* for one warp with 512 records"),
        (lambda: wlc.buffer(8), "grid and block together"),
        (lambda: wlc.buffer(8, 0), "block 0"),
        (lambda: wlc.buffer(records_per_warp=-1), "records_per_warp=-1"),
    ],
)
def test_buffers_that_cannot_work_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_one_tensor_serves_launch_after_launch(gpu: Gpu) -> None:
    words = 40_000
    prof = wlc.buffer(
        BLOCKS, THREADS, records_per_warp=64, tensor=_Memory(words, address=gpu.array(np.zeros(words, np.int64)))
    )
    _, launch, _ = _everything(gpu, prof)
    with wl.profile() as profile:
        launch()
        launch()
    assert [meta.kernel for meta in profile.trace.meta.launches] == ["everything"] * 2
    assert profile.trace.stats()["load"].count == 2 * 3 * BLOCKS * 4


@pytest.mark.parametrize("full", ["stop", "ring"])
def test_a_launch_made_elsewhere_takes_an_address(gpu: Gpu, full: str) -> None:
    array = gpu.array(np.arange(N, dtype=np.float32))
    prof = wlc.buffer(records_per_warp=8)
    with wl.profile(full=full) as profile:
        compiled = compile_cute(Scale().__call__, fake(), Int64(0))
        module = tree.parse(compiled.__ptx__)
        simulate.run(module, module.entries[0].name, 1, 64, [array, prof.address()], memory=gpu.space)
    assert gpu.read(array, np.float32, 2).tolist() == [1, 3]
    assert {(row.region, row.count) for row in profile.trace.stats()} == {("scale", 2)}
    assert profile.trace.meta.launches[0].kernel == "Scale.kernel"


def test_a_kernel_compiled_for_the_other_mode_says_so(gpu: Gpu, capsys: Any) -> None:
    _, launch, _ = _everything(gpu, wlc.buffer())
    with wl.profile(full="ring") as profile:
        launch()
    assert "compiled with full='stop'" in capsys.readouterr().err
    assert len(profile.trace)


def test_a_kernel_that_never_reaches_its_first_line_is_an_error(gpu: Gpu) -> None:
    prof = wlc.buffer()
    compiled = compile_cute(run_add, fake(), fake(), fake(), None, prof)
    arrays = [gpu.array(np.zeros(N, np.float32)) for _ in range(3)]
    gpu.attach(compiled, BLOCKS, THREADS, arrays)
    with pytest.raises(WarplensError, match="no warp reached wlc.kernel"), wl.profile():
        compiled(fake(), fake(), fake(), prof)


@pytest.mark.parametrize(("version", "message"), [(None, "not installed"), ("4.4.9", "4.4.9 is too old")])
def test_a_missing_or_old_dsl_is_told_with_the_line_that_gets_it(
    version: str | None, message: str, monkeypatch: Any
) -> None:
    if version is None:
        monkeypatch.setattr(installed, "find_spec", lambda name: None)
    else:
        monkeypatch.setattr(installed.metadata, "version", lambda name: version)
    with pytest.raises(WarplensError, match=f"{message}.*pip install -U 'nvidia-cutlass-dsl>=4.5.3'"):
        require_cute()
