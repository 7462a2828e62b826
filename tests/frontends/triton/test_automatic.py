"""Automatic marks in kernels that run: each region where it belongs, results as they were, what is said of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import tests.support.plain_kernels as kernels  # noqa: E402
import warplens as wl  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from warplens import simulate  # noqa: E402
from warplens.calibrate import record_cost  # noqa: E402
from warplens.errors import UsageError, WarplensError  # noqa: E402
from warplens.frontends.triton import stages  # noqa: E402
from warplens.launch import buffers  # noqa: E402
from warplens.launch.collected_run import CollectedRun  # noqa: E402
from warplens.launch.variant import Variant  # noqa: E402
from warplens.launch.woven import WovenKernel  # noqa: E402
from warplens.options import Options  # noqa: E402
from warplens.record.capture import Device  # noqa: E402
from warplens.record.layout import HEADER  # noqa: E402
from warplens.trace.schema import LIFE  # noqa: E402
from warplens.weave.weaving import Selection, capacity_of  # noqa: E402

SOURCE = Path(kernels.__file__)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    for kernel in (kernels.add, kernels.layer_norm, kernels.collatz):
        monkeypatch.setattr(kernel, "device_caches", type(kernel.device_caches)(kernel.device_caches.default_factory))
    with fake_gpu(monkeypatch) as gpu:
        yield gpu


def line(text: str, nth: int = 0) -> int:
    """The number of the nth source line that holds `text`."""
    return [n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line][nth]


def run_add(gpu: FakeGpu, blocks: int = 2, **options: Any) -> tuple[wl.Profile, Any]:
    n = 256 * blocks - 5
    x, y = (gpu.tensor(np.arange(n, dtype=np.float32) * k) for k in (1, 2))
    out = gpu.tensor(np.zeros(n, np.float32))
    with wl.profile(**options) as profile:
        kernels.add[(blocks,)](x, y, out, n, 256)
    assert np.array_equal(out.numpy(), x.numpy() + y.numpy())
    return profile, out


def run_norm(gpu: FakeGpu, times: int = 1, columns: int = 600, **options: Any) -> wl.Profile:
    rng = np.random.default_rng(0)
    x, w, b = (gpu.tensor(rng.normal(size=size).astype(np.float32)) for size in ((3, columns), columns, columns))
    out = gpu.tensor(np.zeros((3, columns), np.float32))
    with wl.profile(**options) as profile:
        for _ in range(times):
            kernels.layer_norm[(3,)](x, out, w, b, columns, 1e-5, 256)
    centred = x.numpy() - x.numpy().mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w.numpy() + b.numpy()
    assert np.allclose(out.numpy(), expected, atol=1e-4)
    return profile


def test_a_kernel_without_a_word_of_warplens_shows_its_loads_and_stores_by_line(gpu: FakeGpu) -> None:
    profile, _ = run_add(gpu, auto=True)
    trace = profile.trace
    load, store = (
        f"load plain_kernels.py:{line('total = tl.load')}",
        f"store plain_kernels.py:{line('tl.store(out + o')}",
    )
    counts = {row.region: row.count for row in trace.stats()}
    work = {region for region in counts if region.startswith("work plain_kernels.py:")}
    assert counts == {load: 8, store: 8} | dict.fromkeys(work, 8)
    assert len(work) == 2, "before the load, and between load and store"
    assert trace.meta.launches[0].covered["least"] > 0.95
    assert run_add(gpu, auto="loads,stores")[0].trace.meta.launches[0].covered["least"] < 0.95
    assert trace.meta.locations[load].startswith(f"{SOURCE}:{line('total = tl.load')}:")
    extra = trace.meta.launches[0].extra
    assert extra["registers"] > 0
    assert extra["spills"] == 0
    assert extra["shared_bytes_kernel"] == 0


def test_all_marks_nest_and_iterations_are_numbered(gpu: FakeGpu) -> None:
    trace = run_norm(gpu, auto="all", least_occupancy=0).trace
    rows = trace.spans.to_pylist()
    last = f"loop plain_kernels.py:{line('for start in range(0, n, BLOCK)', 2)}"
    numbers = [row["value"] for row in rows if row["kind"] == "value" and row["region"] == last and row["track"] == 0]
    assert numbers == [0, 1, 2]
    for row in rows:
        kind, place = row["region"].rsplit(" ", 1)
        if row["parent"] >= 0:
            around, at = rows[row["parent"]]["region"].rsplit(" ", 1)
            # A loop is inside its own line; lines are inside loops, and operations inside both.
            assert around in ("loop", "line"), row
            assert kind != "line" or around == "loop"
            assert kind != "loop" or (place == at and around == ("loop" if row["kind"] == "value" else "line"))
    assert trace.meta.losses.mismatched_ends == trace.meta.losses.orphan_ends == 0
    assert not any(row["open"] for row in rows)
    assert trace.meta.launches[0].covered["least"] >= 0.95


def test_all_accounts_for_each_warp_of_a_kernel_that_lives_for_a_load_and_a_store(gpu: FakeGpu) -> None:
    profile, _ = run_add(gpu, auto="all", least_occupancy=0)
    assert profile.trace.meta.launches[0].covered["least"] >= 0.9
    out = gpu.tensor(np.zeros(7, np.int32))
    with wl.profile(auto="all", least_occupancy=0) as profile:
        kernels.collatz[(7,)](out, 100)
    assert out.numpy().tolist() == [0, 1, 7, 2, 5, 8, 16]
    assert profile.trace.meta.launches[0].covered["least"] >= 0.9
    few, _ = run_add(gpu, auto="stores", least_occupancy=0)
    assert few.trace.meta.launches[0].covered["median"] < 0.5, "what is not asked for is not covered"


def test_a_while_loop_has_a_numbered_region_for_each_iteration(gpu: FakeGpu) -> None:
    out = gpu.tensor(np.zeros(7, np.int32))
    with wl.profile(auto="loops") as profile:
        kernels.collatz[(7,)](out, 100)
    assert out.numpy().tolist() == [0, 1, 7, 2, 5, 8, 16]
    rows = [row for row in profile.trace.spans.to_pylist() if row["warp"] == 0]
    for block, steps in enumerate(out.numpy().tolist()):
        assert [row["value"] for row in rows if row["block"] == block and row["kind"] == "value"] == list(range(steps))
        spans = [row["region"] for row in rows if row["block"] == block and row["kind"] == "span"]
        assert len(spans) == steps or spans == [LIFE], "a warp without an iteration has its life"


def test_a_region_by_lines_holds_what_stands_in_them_and_nothing_else(gpu: FakeGpu) -> None:
    first, last = line("total += centred * centred") - 3, line("total += centred * centred")
    profile = run_norm(gpu, regions={"variance": f"plain_kernels.py:{first}-{last}"}, least_occupancy=0)
    (row,) = profile.trace.stats()
    assert (row.region, row.count) == ("variance", 3 * 4)
    assert profile.trace.meta.locations["variance"] == f"{SOURCE}:{first}-{last}"


def test_lines_without_kernel_code_are_refused_with_those_that_have_some(gpu: FakeGpu) -> None:
    with pytest.raises(
        UsageError, match=r"no kernel that ran has code in these lines; .*plain_kernels\.py has code in"
    ):
        run_add(gpu, auto=True, regions={"nothing": "plain_kernels.py:1-3"})
    with pytest.raises(UsageError, match=r"no kernel that ran has code in a file other\.py; files with code: plain_"):
        run_add(gpu, regions={"nothing": "other.py:1-3"})


def test_more_places_than_may_be_marked_leave_out_lines_first(gpu: FakeGpu, capsys: pytest.CaptureFixture[str]) -> None:
    profile = run_norm(gpu, auto="loads,lines", most_marks=11, least_occupancy=0)
    lines = {row.region for row in profile.trace.stats() if row.region.startswith("line")}
    loops = {f"line plain_kernels.py:{line('for start in range(0, n, BLOCK)', nth)}" for nth in range(3)}
    assert lines == loops, "those that hold most of the kernel stay"
    said = capsys.readouterr().err
    assert "layer_norm: 24 places could be marked, 11 may be: left out 13 of lines" in said
    assert "most_marks=24 (--most-marks 24) marks all" in said
    assert profile.notes["layer_norm"]


def test_marks_by_hand_stay_and_automatic_ones_nest_with_them(gpu: FakeGpu) -> None:
    from triton import language as tl

    import warplens.triton as wlt

    @triton.jit
    def halves(x, out):
        offsets = tl.arange(0, 64)
        with wlt.region("mine"):
            values = tl.load(x + offsets)
            values = values * 2
        tl.store(out + offsets, values)

    x, out = gpu.tensor(np.arange(64, dtype=np.float32)), gpu.tensor(np.zeros(64, np.float32))
    with wl.profile(auto="all", least_occupancy=0) as profile:
        halves[(1,)](x, out)
    rows = [row for row in profile.trace.spans.to_pylist() if row["warp"] == 0]
    mine = next(i for i, row in enumerate(rows) if row["region"] == "mine")
    assert {row["region"].split()[0] for row in rows if row["parent"] == mine} == {"line"}
    assert profile.trace.meta.losses.mismatched_ends == 0


def test_a_second_launch_gets_the_room_that_the_first_one_needed(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "DEFAULT_SHIFTS", (8, 8))
    trace = run_norm(gpu, times=2, auto="all", least_occupancy=0).trace
    first, second = (info.extra for info in trace.meta.launches)
    assert first["most_written"] == second["most_written"] > first["capacity"]
    assert second["capacity"] >= second["most_written"]


def test_a_first_launch_gets_room_before_anybody_knows_what_it_needs() -> None:
    """A thousand blocks of 32 warps, 716 records each: what a tiled product under `all` writes."""
    kernel = WovenKernel(
        name="matmul",
        warps=32,
        regions={},
        locations={},
        slack=20,
        full="stop",
        store="late",
        select=Selection(),
        auto=True,
    )
    for total, least in ((140 << 30, 716), (24 << 30, 716), (8 << 30, 200)):
        asked = Options(auto="all")
        lender = buffers.Buffers(CollectedRun(), asked)
        shift = lender.shift(kernel, Variant("matmul", dict), 32768, total // 4)
        assert capacity_of(shift, "stop", kernel.slack) >= least
        assert 32768 << shift <= max(total // 64, buffers.DEFAULT_BYTES)
    by_hand = replace(kernel, auto=False)
    assert 32768 << lender.shift(by_hand, Variant("matmul", dict), 32768, 2 << 30) == buffers.DEFAULT_BYTES


def test_the_slowdown_is_estimated_from_what_a_record_costs(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record_cost, "constants", lambda: {record_cost.ALONE_CYCLES: 10.0, record_cost.CROWDED: 0.01})
    trace = run_norm(gpu, times=2, auto="all", least_occupancy=0).trace
    assert all(info.cost["slowdown"] > 1.05 for info in trace.meta.launches)
    said = capsys.readouterr().err
    assert said.count("layer_norm: marks slow it down by an estimated") == 1, "once, at the second launch"


@pytest.mark.parametrize(
    ("warps", "records", "expected"),
    [(1, 100, 1 / 0.8), (8, 100, 1 / 0.76), (32, 100, 1 / 0.5), (8, 10, 1 / 0.976)],
    ids=["a warp waits for its own", "all wait for the SM", "some were hidden", "fewer cost less"],
)
def test_few_warps_pay_for_their_own_records_and_many_for_the_stores_of_their_sm(
    warps: int, records: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warps that live together for 10,000 cycles on each of two SMs; their clocks have nothing in common."""
    headers = np.zeros(2 * warps + 1, HEADER)
    headers["state"][:-1] = 1
    headers["sm"] = np.arange(2 * warps + 1) % 2
    headers["start_clock"] = 5_000_000 * headers["sm"]
    headers["exit_clock"] = headers["start_clock"] + 10_000
    headers["written"] = records
    monkeypatch.setattr(record_cost, "constants", lambda: {record_cost.ALONE_CYCLES: 20.0, record_cost.CROWDED: 3.0})
    found = record_cost.estimate(headers)
    assert found["slowdown"] == pytest.approx(expected)
    assert f"{expected:.2f}x: {records} records per warp at 20 cycles" in record_cost.describe(found, headers)
    monkeypatch.setattr(record_cost, "constants", dict)
    assert record_cost.estimate(headers) == {}, "without a GPU to measure on, nothing is said"


def test_of_a_kernel_that_every_mark_would_harm_the_lives_of_its_warps_are_left(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warplens.weave.fit.harm import Guard, Harm

    monkeypatch.setattr(Guard, "harm", lambda self, woven: Harm("with marks it would spill 8 bytes"))
    profile, _ = run_add(gpu, auto=True)
    assert profile.notes["add"] == [
        "only the lifetime of each warp is recorded: with marks it would spill 8 bytes",
        "even so, with marks it would spill 8 bytes",
    ]
    trace = profile.trace
    assert {(row["region"], row["kind"], row["open"]) for row in trace.spans.to_pylist()} == {(LIFE, "span", False)}
    (launch,) = trace.meta.launches
    assert launch.tracks == len(trace) == 2 * 4
    assert launch.busy_cycles == sum(trace.numpy("dur_cycles")) > 0
    assert launch.end_ns > launch.begin_ns
    assert trace.stats().rows[0].share == pytest.approx(1.0)
    with pytest.raises(WarplensError, match="add: runs unmarked: with marks it would spill 8 bytes"):
        run_add(gpu, auto=True, strict=True)


def test_what_ptxas_refuses_runs_unmarked_and_the_program_hears_nothing_of_it(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    woven = stages.weave

    def broken(text: str, **options: Any) -> Any:
        made = woven(text, **options)
        return made if not made.entries else type(made)(made.text.replace("mov.u32", "mow.u32"), **_rest(made))

    monkeypatch.setattr(stages, "weave", broken)
    with pytest.raises(WarplensError, match="no automatic mark could be placed"):
        run_add(gpu, auto=True)
    heard = capfd.readouterr()
    assert heard.out == ""
    assert re.search(r"add: runs unmarked: with marks it does not compile \(.*error", heard.err)
    assert "share the reproducer" not in heard.err


def _rest(made: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(made).items() if name != "text"}


def test_notes_outlive_the_process_that_compiled(gpu: FakeGpu, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel from Triton's cache has its reasons with it."""
    for _ in range(2):
        kernels.layer_norm.device_caches.clear()
        run_norm(gpu, auto="loads,lines", most_marks=9, least_occupancy=0)
        assert "places could be marked" in capsys.readouterr().err


class InterpretedDriver:
    """What the calibration asks of a driver; every instruction takes a cycle or a few."""

    def __init__(self) -> None:
        self.memory = simulate.GlobalMemory(64 << 20)
        self.freed: list[int] = []
        self.free = self.freed.append

    def device(self) -> Device:
        return Device("interpreter", sm_count=2)

    def allocate(self, size: int) -> int:
        return self.memory.alloc(size)

    def clear(self, address: int, size: int, stream: int) -> None: ...

    def load(self, image: bytes) -> str:
        return image.decode().rstrip("\0")

    def function(self, module: str, name: str) -> tuple[str, str]:
        return module, name

    def launch(self, function: Any, grid: Any, block: Any, arguments: list[bytes], shared: int, stream: int) -> None:
        values = [int.from_bytes(one, "little") for one in arguments]
        simulate.run(*function, grid, block, values, memory=self.memory)

    def synchronize(self) -> None: ...

    def download_rows(self, address: int, pitch: int, width: int, rows: int, out_pitch: int) -> np.ndarray:
        return np.concatenate([self.memory.read(address + row * pitch, np.uint8, width) for row in range(rows)])


def test_the_calibration_measures_what_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cost, "CROWD", 4)
    lib = InterpretedDriver()
    found = record_cost._measure(lib)  # type: ignore[arg-type]
    assert 2 < found[record_cost.ALONE_CYCLES] < 40
    assert 0.5 < found[record_cost.CROWDED] < found[record_cost.ALONE_CYCLES], "warps on an SM overlap"
    assert len(lib.freed) == 2
