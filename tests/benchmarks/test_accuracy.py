"""The accuracy benchmark without a GPU: its work compiles in every language, and the interpreter runs what it can."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from benchmarks.accuracy import every_language, long_kernels
from benchmarks.accuracy.page import page
from benchmarks.accuracy.snippets import AMOUNTS, INTERPRETED, texts
from benchmarks.lib.gpu_programs import KERNELS
from tests.support.cuda_compilers import needs_nvrtc, needs_sass, sass
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.nvrtc import compile_cubin, compile_ptx
from warplens.record.cost_keys import BEHIND_CYCLES, EMPTY_CYCLES, RECORD_CYCLES, REGION_CYCLES

COST = {REGION_CYCLES: 0.0, RECORD_CYCLES: 0.0, EMPTY_CYCLES: 0.0, BEHIND_CYCLES: 0.0}


class KnownWorkDriver(SimulatedDriver):
    def parameter_sizes(self, function: int) -> list[int]:
        return list(self.sizes)

    def download(self, address: int, size: int) -> bytes:
        return self.space.read(address, np.uint8, size).tobytes()

    sizes: Sequence[int] = (8, 8, 4, 8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> KnownWorkDriver:
    return in_place(monkeypatch, KnownWorkDriver())


@needs_nvrtc
@pytest.mark.parametrize("work", AMOUNTS)
def test_the_work_compiles_for_cuda_in_both_forms(work: str) -> None:
    text = every_language.source(work, AMOUNTS[work][0])
    for marks in ("-DWARPLENS=0", "-DWARPLENS=1"):
        assert compile_cubin(text, "known_work.cu", "sm_90a", [marks])
    ptx = compile_ptx(text, "known_work.cu", "sm_90a", woven_build.FLAGS)
    assert woven_build.weavable(ptx)


@pytest.mark.parametrize("language", ["Triton", "Gluon"])
@pytest.mark.parametrize("work", AMOUNTS)
def test_the_work_compiles_for_triton_with_marks(language: str, work: str) -> None:
    pytest.importorskip("triton")
    from benchmarks.accuracy import triton_work
    from tests.support.triton_examples import Job
    from warplens.weave.weaving import Weaving

    kernel = triton_work.known_work if language == "Triton" else triton_work.known_work_gluon
    amount = AMOUNTS[work][0]
    signature = {"extra": "*i64", "memory": "i64", "repeats": "i32"}
    _, woven = Job(kernel, signature, texts(work, amount), {"num_warps": 1}).woven(90, Weaving())
    assert woven.resources.registers


@pytest.mark.parametrize("work", AMOUNTS)
def test_the_work_compiles_for_the_cute_dsl(work: str) -> None:
    pytest.importorskip("cutlass.cute", reason="needs nvidia-cutlass-dsl")
    from tests.support.cute_gpu import compile_cute

    # isort: split
    from cutlass import Int64
    from cutlass.cute.runtime import make_fake_compact_tensor

    import warplens.cute as wlc
    from benchmarks.accuracy import cute_work

    extra = make_fake_compact_tensor(Int64, (64,))
    made = compile_cute(cute_work.run, extra, 4096, 2, 16, texts(work, AMOUNTS[work][0]), wlc.buffer())
    assert made.__ptx__.count("%clock64") >= 2 + 4


@needs_nvrtc
@needs_sass
@pytest.mark.parametrize(("work", "instruction"), [("fma", "FFMA"), ("mma", "HMMA"), ("l2", "LDG"), ("shared", "LDS")])
def test_all_of_the_work_stands_between_the_clock_reads(work: str, instruction: str, tmp_path: Path) -> None:
    amount = AMOUNTS[work][0]
    cubin = compile_cubin(every_language.source(work, amount), "known_work.cu", "sm_90a", ["-DWARPLENS=0"])
    code = sass(cubin, tmp_path)
    reads = [at for at, text in enumerate(code) if "CLOCK" in text]  # without marks only the loop with four is left
    assert len(reads) % 4 == 0
    for first, last in zip(reads[1::4], reads[2::4], strict=True):
        assert sum(instruction in text for text in code[first:last]) == amount


def _reads(code: list[str]) -> list[int]:
    return [at for at, text in enumerate(code) if "CLOCKLO" in text]


@needs_nvrtc
@needs_sass
@pytest.mark.parametrize("work", sorted(set(AMOUNTS) - {"bulk"}))
def test_a_direct_region_has_the_stores_of_its_marks_behind_it(work: str, tmp_path: Path) -> None:
    """The work's first clock read follows that of the begin at once. It waits for no store: the begin's read is into a
    register of the last one, and stores read theirs in order."""
    text = every_language.source(work, AMOUNTS[work][0])
    code = sass(compile_cubin(text, "known_work.cu", "sm_90a", ["-DWARPLENS=1"]), tmp_path)
    (begin,) = [at for at in _reads(code) if re.match(r"@P\d CS2R\.32", code[at])]
    first, last, end = _reads(code)[_reads(code).index(begin) + 1 :][:3]
    assert first == begin + 1
    assert not any("STG" in one for one in code[begin:end])
    assert "CS2R.32" in code[end]
    *_, store = (one for one in code[: code.index("EXIT") if "EXIT" in code else None] if "STG.E.EF.64" in one)
    clock = int(re.findall(r"R(\d+)", code[begin])[0])
    assert int(re.findall(r"R(\d+)", store)[-1]) + 1 == clock
    assert last - first >= 2


@pytest.mark.parametrize("work", AMOUNTS)
def test_what_reads_take_is_said_by_a_loop_that_is_not_unrolled(work: str, tmp_path: Path) -> None:
    """Of an unrolled one, the inner read of one copy waited for the store of another's result."""
    pytest.importorskip("triton")
    from benchmarks.accuracy import triton_work
    from tests.support.triton_examples import Job

    signature = {"extra": "*i64", "memory": "i64", "repeats": "i32"}
    job = Job(triton_work.known_work, signature, texts(work, AMOUNTS[work][0]), {"num_warps": 1})
    assert len(_reads(sass(job.compile(90).asm["cubin"], tmp_path))) == 4  # without marks the other loop is empty


@needs_nvrtc
@pytest.mark.parametrize("work", INTERPRETED)
def test_an_instance_knows_its_own_length(gpu: KnownWorkDriver, work: str) -> None:
    amount, repeats = 16, every_language.WARM_UP + 5
    extra = gpu.space.alloc(np.zeros(repeats, np.int64))
    ring = gpu.space.alloc(np.zeros(8, np.uint64))
    gpu.space.write(ring, np.full(8, ring, np.uint64))
    kernel = wlcu.compile(every_language.source(work, amount), arch="sm_90")["known_work"]
    with wl.profile(records_per_warp=4 * repeats) as profile:
        kernel.launch(1, 32, np.uint64(extra), np.uint64(ring), np.int32(repeats))
    trace = profile.trace
    trace.meta.launches[0].cost.update(COST)
    found = every_language.errors(trace, gpu.space.read(extra, np.int64, repeats), repeats)
    assert found["instances"] == 5
    assert found["expected"] >= amount
    assert abs(found["raw error"]) <= 2
    assert found["median |error|"] <= 2


@needs_nvrtc
def test_languages_and_works_that_fail_do_not_stop_the_others(
    gpu: KnownWorkDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.lib import gpu_programs

    for place in (gpu_programs, every_language):
        monkeypatch.setattr(place, "driver", lambda: gpu)
    monkeypatch.setattr(every_language, "AMOUNTS", {"fma": (16,), "unheard of": (1,)})
    monkeypatch.setattr(every_language, "PER_SM", 1)
    monkeypatch.setattr(wlcu, "_arch_here", lambda: "sm_90a")

    def missing() -> every_language.Launch:
        raise ImportError("no such compiler")

    woven = every_language.cuda(True)

    def calibrated(*given: Any) -> Any:
        trace, extra = woven(*given)
        return every_language.calibrated(trace, COST), extra

    said: list[str] = []
    found = every_language.measure({"CUDA": lambda: calibrated, "other": missing}, said.append)
    assert found["other"] == {"failed": "ImportError: no such compiler"}
    rows = {(row["work"], row["load"]): row for row in found["CUDA"]["rows"]}
    assert rows["fma", every_language.ALONE]["instances"] == every_language.REPEATS[every_language.ALONE] - 10
    assert rows["fma", every_language.LOADED]["instances"] == 4 * (every_language.REPEATS[every_language.LOADED] - 10)
    assert "failed" in rows["unheard of", every_language.ALONE]
    assert [text.split(":")[0] for text in said] == ["CUDA"]
    gc.collect()  # what failed still holds device memory, which the fake driver must free


@needs_nvrtc
def test_a_long_run_is_judged_by_the_timer_and_the_clock_it_recorded(gpu: KnownWorkDriver) -> None:
    gpu.sizes = (8, 8, 8, 8, 8)
    kernel = wlcu.compile(KERNELS / "long_run.cu", arch="sm_90")["long_run"]
    with wl.profile(records_per_warp=400) as profile:
        kernel.launch(2, 32, np.uint64(gpu.space.alloc(16)), *(np.uint64(n) for n in (40_000, 10_000, 20_000)))
    found = long_kernels.judged(profile.trace)
    assert found["moments"] == 2 * 4
    assert found["worst error of the whole, cycles"] <= 20
    assert found["p99_ns"] <= 40


def test_a_region_that_wraps_wrongly_is_found() -> None:
    cycles = np.array([5 + 2**32, 7])
    assert long_kernels._worst(cycles, np.array([5.0, 7.0])) == 2**32
    assert long_kernels._worst(cycles, np.array([5.0])) is None


def test_the_clock_changes_in_turn_until_the_kernel_ends() -> None:
    turns: list[int] = []
    enough = threading.Event()

    def change(turn: int) -> None:
        turns.append(turn)
        if turn == 3:
            enough.set()

    with long_kernels.in_turn(change, every=0.001) as problems:
        assert enough.wait(20)
    ended = len(turns)
    assert turns == list(range(ended))
    assert not problems
    with long_kernels.in_turn(lambda turn: [][turn], every=0.001) as problems:
        pass
    assert problems == ["IndexError: list index out of range"]


def test_the_clock_of_the_gpu_is_only_locked_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(long_kernels, "_nvidia_smi", asked.append)
    monkeypatch.setattr(long_kernels, "Products", {}.__getitem__)
    with long_kernels.changing_clock(lock=False) as how:
        pass
    assert how["clock"].startswith("no load: TypeError")
    assert not asked
    with long_kernels.changing_clock(lock=True) as how:
        pass
    assert asked[-1] == "--reset-gpu-clocks"
    assert all("lock-gpu-clocks" in one for one in asked[:-1])
    assert how["clock"].startswith("locked to 1200 and 1900 MHz")


def test_the_page_states_misses_and_failures() -> None:
    row = {
        "work": "fma", "amount": 64, "load": "alone", "instances": 110, "expected": 256.0, "reads": 10.0, "bar": 1.28,
        "raw error": 0.0, "error": 2.0, "median |error|": 2.0, "p99 |error|": 2.0, "worst |error|": 3.0, "met": False,
        "reads differ": 0.0,
    }  # fmt: skip
    long = {
        "moments": 100, "p50_ns": 8.0, "p99_ns": 20.0, "worst_ns": 40.0, "stated_p99_ns": 22.0, "wraps": 1.7,
        "within the stated p99": 0.995, "cycles of a step, least and most": [10, 20],
        "worst error of the whole, cycles": 3.0, "clock": "no permission", "MHz, least and most": [1200, 1980],
    }  # fmt: skip
    moments = {"count": 10, "p50_ns": 5, "p99_ns": 33.0, "max_ns": 40, "within the stated p99": 0.99,
               "within the stated max": 1.0}  # fmt: skip
    context = dict.fromkeys(("command", "date", "device", "driver", "nvrtc", "python"), "x")
    text = page(
        {
            "context": context,
            "failed": {"chains": "RuntimeError: broken"},
            "languages": {"Triton": {"rows": [row, {**row, "met": True}]}, "CuTe": {"failed": "no module"}},
            "long": {"clock changes": long},
            "placement": {"timer": {"launches": 25, "moments": moments}},
        }
    )
    assert re.search(
        r"Triton: .* 1 of 2; worst median 2 cycles; by the median of the signed error 0, "
        r"the same without the correction 2 \| MISSED",
        text,
    )
    assert "CuTe: median error at most 1 cycle or 0.5 %, all lengths | no module | MISSED" in text
    assert "p99 20 ns; 99.5% within the stated p99 | met" in text
    assert "p99 33 ns; 99.0% within the stated p99 | MISSED" in text
    assert "clock changes: no permission; 1200 to 1980 MHz within a step" in text
    assert "chains: RuntimeError: broken" in text
