"""The truth set without a GPU: every kernel compiles with and without marks, and gives the right result in small."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warplens as wl
from benchmarks.truth import score
from benchmarks.truth.accepted import ACCEPTED
from benchmarks.truth.ninth_pairs import NINTH
from benchmarks.truth.pair import BROKEN, REPAIRED, Pair
from benchmarks.truth.pairs import PAIRS
from benchmarks.truth.sets import EVERY
from tests.support.cuda_compilers import needs_nvrtc
from tests.support.simulated_driver import SimulatedDriver, in_place
from warplens import simulate
from warplens.frontends.cuda import module as module_file
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.nvrtc import compile_cubin, compile_ptx, cuda_includes

KERNELS = Path(__file__).parents[2] / "benchmarks" / "truth" / "kernels"
ASYNC = {"activation_sum", "staged_sums"}
"""CUDA kernels with instructions that the interpreter does not have: mbarriers and bulk copies."""
OF = {language: [pair for pair in EVERY if pair.language == language] for language in ("CUDA", "Triton", "Gluon")}


def ids(pair: Pair) -> str:
    return pair.name


class Array:
    """An array in the interpreter's memory."""

    def __init__(self, space: simulate.GlobalMemory, dtype: Any, shape: tuple[int, ...], address: int) -> None:
        self.space, self._dtype, self.shape, self.address = space, np.dtype(dtype), shape, address
        self.dtype = self._dtype.name

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return self._dtype.itemsize

    def __getitem__(self, row: int) -> Array:
        length = int(np.prod(self.shape[1:]))
        return Array(self.space, self._dtype, self.shape[1:], self.address + row * length * self._dtype.itemsize)

    def read(self) -> Any:
        return self.space.read(self.address, self._dtype, int(np.prod(self.shape))).reshape(self.shape)


class InterpreterLab:
    """Small inputs, two SMs, no marks."""

    sms = 2

    def __init__(self, space: simulate.GlobalMemory) -> None:
        self.space = space

    def size(self, full: int, small: int) -> int:
        return small

    def upload(self, values: Any) -> Array:
        return Array(self.space, values.dtype, values.shape, self.space.alloc(np.ascontiguousarray(values)))

    def zero(self, array: Array) -> None:
        self.space.write(array.address, np.zeros(array.shape, array._dtype))

    def kernel(self, file: str, name: str, repaired: bool) -> Any:
        options = [f"-DREPAIRED={int(repaired)}", "-DWARPLENS=0", *cuda_includes()]
        text = compile_ptx((KERNELS / file).read_text(), file, "sm_90a", options)
        return InterpretedKernel(self.space, text, name)


class InterpretedKernel:
    def __init__(self, space: simulate.GlobalMemory, text: str, name: str) -> None:
        self.space, self.text, self.name = space, text, name

    def launch(self, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        given = [one.address if isinstance(one, Array) else int(one) for one in arguments]
        simulate.run(self.text, self.name, grid, block, [*given, 0], memory=self.space, shared=shared)


def check(pair: Pair, lab: Any) -> None:
    """Both versions give the expected result, or the same one where it is not computed apart."""
    case = pair.make(lab)
    assert set(case.run) == set(pair.versions)
    results = {}
    for version, run in case.run.items():
        for array in case.clear:
            lab.space.write(array.address, np.zeros(array.shape, array._dtype))
        run()
        results[version] = case.outputs[version].read().astype(np.float64)
        assert results[version].any()
    expected = case.expected if case.expected is not None else next(iter(results.values()))
    for result in results.values():
        np.testing.assert_allclose(result, expected, rtol=max(case.tolerance, 0), atol=case.tolerance)


def test_the_set_covers_what_the_findings_are_judged_by() -> None:
    causes = {pair.cause for pair in PAIRS if pair.change}
    assert len([pair for pair in PAIRS if pair.change]) >= 12
    assert {
        "uncoalesced loads", "bank conflicts", "too little in flight", "too few blocks", "tail of the last wave",
        "imbalance between warps", "imbalance between blocks", "serialised section", "producer too slow",
        "consumer too slow", "register spills", "low occupancy", "atomics contention", "unneeded barrier",
        "launch ramp",
    } <= causes  # fmt: skip
    assert {pair.cause for pair in PAIRS if not pair.change} == {"compute bound", "memory bound"}
    assert all(OF.values())
    assert len({pair.name for pair in EVERY}) == len(EVERY)


def test_the_ninth_set_has_kernels_and_causes_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks.truth import __main__ as command
    from benchmarks.truth import run_all

    causes = [pair.cause for pair in NINTH if pair.change]
    assert len(causes) == len(set(causes)) == 13
    assert {pair.cause for pair in NINTH if not pair.change} == {"compute bound", "memory bound"}
    assert {pair.kernel for pair in NINTH}.isdisjoint(pair.kernel for pair in EVERY if pair not in NINTH)
    chosen: list[Any] = []
    monkeypatch.setattr(run_all, "run_all", lambda pairs, *_, **__: chosen.extend(pairs) or 0)
    monkeypatch.setattr(sys, "argv", ["truth", "--out", str(tmp_path), "--set", "9"])
    assert command.main() == 0
    assert chosen == list(NINTH)


@needs_nvrtc
@pytest.mark.parametrize("pair", [pair for pair in OF["CUDA"] if pair.kernel not in ASYNC], ids=ids)
def test_a_cuda_kernel_gives_the_right_result(pair: Pair) -> None:
    check(pair, InterpreterLab(simulate.GlobalMemory(64 << 20)))


@pytest.mark.slow  # three compilations of every kernel
@needs_nvrtc
@pytest.mark.parametrize("repaired", [0, 1])
@pytest.mark.parametrize("file", sorted(path.name for path in KERNELS.glob("*.cu")))
def test_a_cuda_kernel_compiles_with_and_without_marks(file: str, repaired: int) -> None:
    text, options = (KERNELS / file).read_text(), [f"-DREPAIRED={repaired}", *cuda_includes()]
    marks = len(re.findall("WL_REGION", text))
    for marked in ("-DWARPLENS=0", "-DWARPLENS=1"):
        assert compile_cubin(text, file, "sm_90a", [*options, marked])
    ptx = compile_ptx(text, file, "sm_90a", [*options, *woven_build.FLAGS])
    assert woven_build.weavable(ptx)
    regions = woven_build.names_in(ptx).regions.values()
    assert 0 < len(regions) <= marks
    assert set(regions) <= set(re.findall(r'WL_REGION\("([^"]+)"\)', text))


@pytest.fixture
def triton_lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[InterpreterLab]:
    pytest.importorskip("triton")
    from benchmarks.truth import triton_kernels
    from tests.support.fake_gpu import fake_gpu

    for kernel in vars(triton_kernels).values():
        if hasattr(kernel, "device_caches"):
            kernel.device_caches.clear()  # what is compiled keeps the memory of the fake GPU that it ran on
    with fake_gpu(monkeypatch) as gpu:
        yield InterpreterLab(gpu.space)


@pytest.mark.parametrize("pair", OF["Triton"], ids=ids)
def test_a_triton_kernel_gives_the_right_result(pair: Pair, triton_lab: InterpreterLab) -> None:
    check(pair, triton_lab)


def test_a_gluon_kernel_gives_the_right_result(triton_lab: InterpreterLab) -> None:
    check(next(pair for pair in OF["Gluon"] if pair.name == "rotary"), triton_lab)


def test_a_triton_kernel_without_marks_gives_the_same(triton_lab: InterpreterLab, tmp_path: Path, monkeypatch) -> None:
    from benchmarks.truth import (
        fifth_cases,
        fifth_kernels,
        fourth_cases,
        fourth_kernels,
        ninth_cases,
        ninth_kernels,
        second_cases,
        seventh_cases,
        seventh_kernels,
        sixth_cases,
        sixth_kernels,
        tenth_cases,
        tenth_kernels,
        third_cases,
        third_kernels,
        triton_cases,
        triton_kernels,
    )
    from benchmarks.truth.unmarked import without_marks

    plain = without_marks(triton_kernels, tmp_path)
    assert "wlt.region" not in Path(str(plain.__file__)).read_text()
    for cases in (triton_cases, second_cases):
        monkeypatch.setattr(cases, "kernels", plain)
    later = ((third_cases, third_kernels), (fourth_cases, fourth_kernels), (fifth_cases, fifth_kernels))
    later += ((sixth_cases, sixth_kernels), (seventh_cases, seventh_kernels))
    for cases, module in (*later, (ninth_cases, ninth_kernels), (tenth_cases, tenth_kernels)):
        monkeypatch.setattr(cases, "kernels", without_marks(module, tmp_path))
    for pair in OF["Triton"]:
        check(pair, triton_lab)


GLUON = ("row_sums", "matmul", "paged_sums", "smooth_sums", "cube_sums", "grouped_tiles")


def gluon_jobs() -> dict[str, Any]:
    from benchmarks.truth import fifth_kernels, fourth_kernels, seventh_kernels
    from benchmarks.truth import gluon_kernels as kernels
    from tests.support.triton_examples import Job, descriptor

    tile = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 4, "num_warps": 8}
    tiles = {"a": descriptor(128, 64), "b": descriptor(64, 128), "c": descriptor(128, 128), "K": "i32"}
    rows = {"x": "*fp32", "y": "*fp32", "tiles": "i32"}
    shape = {"ROWS": 128, "COLUMNS": 64}
    found = {}
    for repaired, version in enumerate((BROKEN, REPAIRED)):
        along, waits = {"ALONG_ROWS": bool(repaired)}, {"WAITS": not repaired}
        found[f"row_sums {version}"] = Job(kernels.row_sums, rows, along | shape, {"num_warps": 4})
        found[f"matmul {version}"] = Job(kernels.specialised_matmul, tiles, waits | tile, {"num_warps": 8})
        paged = {"pages": descriptor(32, 32), "after": "*i32", "table": "*i32", "y": "*fp32", "count": "i32"}
        chained = {"CHAINED": not repaired, "STAGES": 4, "num_warps": 4}
        found[f"paged_sums {version}"] = Job(fourth_kernels.paged_sums, paged, chained, {"num_warps": 4})
        warps = 16 if repaired else 4
        smooth = {"x": descriptor(64, 64), "y": "*fp32", "count": "i32"}
        log = {"BY_LOG": not repaired, "STAGES": 4, "num_warps": 4}
        found[f"cube_sums {version}"] = Job(fifth_kernels.cube_sums, smooth, log, {"num_warps": 4})
        groups = {"x": descriptor(64, 64), "ends": "*i32", "places": "*i32", "y": "*fp32", "count": "i32"}
        search = {"FROM_START": not repaired, "STAGES": 4, "num_warps": 4}
        found[f"grouped_tiles {version}"] = Job(seventh_kernels.grouped_tiles, groups, search, {"num_warps": 4})
        found[f"smooth_sums {version}"] = Job(
            fourth_kernels.smooth_sums, smooth, {"STAGES": 4, "num_warps": warps}, {"num_warps": warps}
        )
    turned = dict.fromkeys(("x", "cosines", "sines", "y"), "*fp32") | {"heads": "i32"}
    pieces = {"ROWS": 64, "HALF": 64, "num_warps": 4}
    found[f"rotary {REPAIRED}"] = Job(seventh_kernels.rotary, turned, pieces, {"num_warps": 4})
    return found


@pytest.mark.parametrize(
    "name", [*(f"{kernel} {v}" for kernel in GLUON for v in (BROKEN, REPAIRED)), f"rotary {REPAIRED}"]
)
def test_a_gluon_kernel_compiles_with_marks(name: str) -> None:
    pytest.importorskip("triton")
    from warplens.weave.weaving import Weaving

    job = gluon_jobs()[name]
    plain, woven = job.woven(90, Weaving())
    assert woven.resources.spills <= plain.spills


def ninth_jobs() -> dict[str, Any]:
    """The Triton kernels of the ninth set as they run on a GPU."""
    from benchmarks.truth import ninth_kernels as kernels
    from tests.support.triton_examples import Job

    four, found = {"num_warps": 4}, {}
    for repaired, version in enumerate((BROKEN, REPAIRED)):
        flame = dict.fromkeys(("fuel", "heat", "out"), "*fp32") | {"substeps": "*i32", "count": "i32", "each": "i32"}
        dealt = {"DEALT": bool(repaired), "BLOCK": 256}
        found[f"flame_cells {version}"] = Job(kernels.flame_cells, flame, dealt, four)
        gram = {"x": "*fp16", "gram": "*fp32", "lock": "*i32", "rows": "i32"}
        locked = {"LOCKED": not repaired, "ROWS": 64, "COLUMNS": 64}
        found[f"gram_matrix {version}"] = Job(kernels.gram_matrix, gram, locked, four)
        embedding = {"ids": "*i32", "slopes": "*fp32", "table": "*fp32", "padding": "i32"}
        apart = {"APART": bool(repaired), "TOKENS": 32, "WIDTH": 128}
        found[f"embedding_gradient {version}"] = Job(kernels.embedding_gradient, embedding, apart, four)
    lora = {"x": "*fp16", "a": "*fp16", "y": "*fp32", "depth": "i32"}
    found["lora_shrink"] = Job(kernels.lora_shrink, lora, {"TOKENS": 16, "RANK": 16, "BLOCK": 128}, four)
    resized = {"SIDE": 384, "SMALL": 256, "BLOCK": 1024}
    found["resize_images"] = Job(kernels.resize_images, dict.fromkeys(("images", "out"), "*fp32"), resized, four)
    halves = dict.fromkeys(("gates", "values", "out"), "*fp16")
    found["swiglu"] = Job(kernels.swiglu, halves, {"COLUMNS": 4096}, {"num_warps": 8})
    return found


@pytest.mark.parametrize("kernel", [pair.kernel for pair in NINTH if pair.language == "Triton"])
def test_a_triton_kernel_of_the_ninth_set_compiles_for_a_hopper_gpu(kernel: str) -> None:
    pytest.importorskip("triton")
    from warplens.weave.weaving import Weaving

    jobs = [job for name, job in ninth_jobs().items() if name.split()[0] == kernel]
    assert jobs
    for job in jobs:
        plain, woven = job.woven(90, Weaving())
        assert plain.spills == 0 == woven.resources.spills


class TorchTensor(Array):
    def zero_(self) -> None:
        self.space.write(self.address, np.zeros(self.shape, self._dtype))

    def cpu(self) -> TorchTensor:
        return self

    def numpy(self) -> Any:
        return self.read()


class FakeEvent:
    def __init__(self, enable_timing: bool) -> None:
        pass

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: FakeEvent) -> float:
        return 0.5


class MatvecDriver(SimulatedDriver):
    def parameter_sizes(self, function: int) -> list[int]:
        return [8, 8, 8, 4, 8]


@pytest.fixture
def one_pair(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The runner of one pair, on a GPU that is the interpreter and a torch that does little."""
    gpu = in_place(monkeypatch, MatvecDriver())
    monkeypatch.setattr(module_file, "compile_cubin", lambda *given: compile_ptx(*given).encode())
    monkeypatch.setattr(module_file, "kernel_names", lambda image: ["matvec"])
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(
        get_device_capability=lambda: (9, 0),
        get_device_properties=lambda device: SimpleNamespace(multi_processor_count=2),
        synchronize=lambda: None, empty_cache=lambda: None, _sleep=lambda cycles: None, Event=FakeEvent,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("gpu_lab", "one_pair"):
        monkeypatch.delitem(sys.modules, f"benchmarks.truth.{name}", raising=False)
    from benchmarks.truth import gpu_lab
    from benchmarks.truth import one_pair as made

    monkeypatch.setattr(gpu_lab.GpuLab, "move", lambda self: None)
    monkeypatch.setattr(gpu_lab.GpuLab, "size", lambda self, full, small: small)
    monkeypatch.setattr(
        gpu_lab.GpuLab,
        "upload",
        lambda self, values: TorchTensor(gpu.space, values.dtype, values.shape, gpu.space.alloc(values)),
    )
    return made


@needs_nvrtc
def test_running_a_pair_writes_times_traces_and_raw_bytes(one_pair: Any, tmp_path: Path) -> None:
    pair = next(pair for pair in PAIRS if pair.kernel == "matvec")
    found = one_pair.run(pair, tmp_path)
    assert set(found["errors"]) <= {"kernel_us", "automatic"}, found[
        "errors"
    ]  # torch's profiler and CuPy are not there
    assert found["results"]["identical"]
    assert found["times"][BROKEN]["median_us"] == 500.0 == found["times"][REPAIRED]["median_us"]
    for version in pair.versions:
        trace = wl.load(tmp_path / f"uncoalesced_loads.{version}.warplens")
        raw = wl.load(tmp_path / "raw" / f"uncoalesced_loads.{version}.wlcap")
        assert {"load", "multiply", "store"} == set(trace.regions) == set(raw.regions)
        assert len(trace.meta.launches) == 1
        assert "code" in trace.meta.launches[0].extra


def test_the_results_travel_in_pieces(tmp_path: Path) -> None:
    import io
    import tarfile

    from benchmarks.truth.pieces import write_pieces

    (tmp_path / "a.warplens").write_bytes(np.random.default_rng(1).bytes(5000))
    (tmp_path / "truth.json").write_text("{}")
    (tmp_path / "raw").mkdir()
    pieces = write_pieces(tmp_path, tmp_path / "truth.tar.gz", piece=2000)
    assert [path.name for path in pieces] == ["truth.tar.gz.part-00", "truth.tar.gz.part-01", "truth.tar.gz.part-02"]
    with tarfile.open(fileobj=io.BytesIO(b"".join(path.read_bytes() for path in pieces))) as archive:
        assert archive.getnames() == ["a.warplens", "truth.json"]


def test_kernels_without_marks_keep_their_lines() -> None:
    text = 'def f(x):\n    with wlt.region("load"):\n        y = x\n'
    from benchmarks.truth.unmarked import unmarked

    assert unmarked(text) == "def f(x):\n    if True:\n        y = x\n"


def finding(kind: str, low: float, high: float, region: str = "", withheld: str = "") -> Any:
    gain = SimpleNamespace(low=low, high=high)
    return SimpleNamespace(kind=kind, what=kind, region=region, gain=gain, withheld=withheld)


@pytest.mark.parametrize(
    ("version", "told", "right", "inside"),
    [
        (BROKEN, [finding("uncoalesced access", 0.5, 0.8, "load")], True, True),
        (BROKEN, [finding("uncoalesced access", 0.1, 0.4)], True, False),
        (BROKEN, [finding("uncoalesced access", 0.5, 0.8, "store")], False, None),
        (BROKEN, [finding("low occupancy", 0.5, 0.8), finding("uncoalesced access", 0.5, 0.8)], False, None),
        (
            BROKEN,
            [finding("low occupancy", 0.5, 0.8, withheld="noise"), finding("uncoalesced access", 0, 1)],
            True,
            True,
        ),
        (BROKEN, [], False, None),
        (REPAIRED, [], True, None),
        (REPAIRED, [finding("nothing to fix", 0, 0)], True, None),
        (REPAIRED, [finding("low occupancy", 0.02, 0.3)], True, None),
        (REPAIRED, [finding("low occupancy", 0.2, 0.3)], False, None),
    ],
)
def test_a_first_finding_is_scored(
    monkeypatch: pytest.MonkeyPatch, version: str, told: list[Any], right: bool, inside: bool | None
) -> None:
    monkeypatch.setattr(score, "findings", lambda trace: told)
    pair = next(pair for pair in PAIRS if pair.name == "uncoalesced_loads")
    row = score.row_of(pair, version, None, 0.7 if version == BROKEN else None)
    assert (row.right, row.gain_inside) == (right, inside)


def test_a_repair_that_gains_nothing_was_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = next(pair for pair in PAIRS if pair.name == "uncoalesced_loads")
    monkeypatch.setattr(score, "findings", lambda trace: [finding("nothing to fix", 0, 0)])
    rows = [score.row_of(pair, BROKEN, None, measured) for measured in (0.05, 0.5)]
    assert [row.right for row in rows] == [True, False]
    assert score.shares(rows) == {"broken": (0, 1), "repaired": (1, 1), "gain": (0, 0)}


def test_the_page_states_each_bar_and_every_miss() -> None:
    first, second = PAIRS[:2]
    rows = [
        score.Row(first, BROKEN, "uncoalesced access", "load", "", 0.5, 0.8, True, 0.7),
        score.Row(second, BROKEN, "low occupancy", "", "", 0.5, 0.8, False, 0.7),
        score.Row(first, REPAIRED, "", "", "no finding", 0.0, 0.0, True),
    ]
    context = {"device": "H200", "python": "3.12", "versions": {"triton": "3.6.0"}, "date": "2026-11-15"}
    spent = {"median_us": 10.0, "p10_us": 9.0, "p90_us": 11.0}
    pairs = {first.name: {"times": {BROKEN: spent, REPAIRED: spent}, "gain": 0.0, "change": "other"}}
    text = score.page([score.Scored(rows, [], {"context": context, "pairs": pairs})])
    assert "name the cause: at least 90% | 1 of 2 (50%) | MISSED" in text
    assert "without a false first finding: at least 100% | 1 of 1 (100%) | met" in text
    assert "width of the stated intervals, median | 30% of the kernel's time" in text
    assert (
        "| uncoalesced_layout | Gluon | broken | uncoalesced loads | low occupancy |  | 50% to 80% | 70.0% | WRONG |"
        in text
    )
    assert "| uncoalesced_loads | 10.0 (9.0 to 11.0) | 10.0 (9.0 to 11.0) | 0.0% | other |" in text


def test_every_cause_has_kinds_that_name_it() -> None:
    assert {pair.cause for pair in PAIRS} == set(ACCEPTED)
    assert all(ACCEPTED[pair.cause] for pair in PAIRS if pair.change)
