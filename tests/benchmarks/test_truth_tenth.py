"""What the tenth truth set says of its kernels, as far as compilers and inputs show it without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.truth.pair import BROKEN, REPAIRED, Pair
from benchmarks.truth.sets import EVERY, SETS
from benchmarks.truth.tenth_pairs import TENTH
from tests.support.cuda_compilers import needs_nvrtc
from warplens.frontends.cuda.nvrtc import compile_cubin, cuda_includes
from warplens.weave.fit.ptxas_output import read_cubin

KERNELS = Path(__file__).parents[2] / "benchmarks" / "truth" / "kernels"
OF = {pair.name: pair for pair in TENTH}


class PaperLab:
    """The inputs for an H200, on which nothing runs: launches keep the sizes of their grids."""

    sms = 132

    def __init__(self) -> None:
        self.uploads: list[np.ndarray[Any, Any]] = []
        self.grids: list[Any] = []

    def size(self, full: int, small: int) -> int:
        return full

    def upload(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.uploads.append(values)
        return values

    def zero(self, array: Any) -> None:
        array[:] = 0

    def kernel(self, file: str, name: str, repaired: bool) -> PaperLab:
        return self

    def launch(self, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        self.grids.append(grid)


def test_the_set_has_a_pair_for_each_cause_and_two_kernels_without_one() -> None:
    assert SETS["tenth"] is TENTH
    causes = [pair.cause for pair in TENTH if pair.change]
    assert sorted(causes) == sorted({
        "uncoalesced loads", "bank conflicts", "too little in flight", "too few blocks", "tail of the last wave",
        "imbalance between warps", "imbalance between blocks", "serialised section", "producer too slow",
        "register spills", "atomics contention", "unneeded barrier",
    })  # fmt: skip
    assert {pair.cause for pair in TENTH if not pair.change} == {"compute bound", "memory bound"}
    assert [pair.language for pair in TENTH].count("CUDA") == 8
    assert len({pair.kernel for pair in EVERY} & {pair.kernel for pair in TENTH}) == len(TENTH)


@pytest.mark.parametrize("pair", TENTH, ids=lambda pair: pair.name)
def test_the_regions_where_a_cause_may_be_are_marked(pair: Pair) -> None:
    path = KERNELS / f"{pair.kernel}.cu"
    text = (path if pair.language == "CUDA" else KERNELS.parent / "tenth_kernels.py").read_text()
    mark = "WL_REGION" if pair.language == "CUDA" else "wlt.region"
    assert all(f'{mark}("{region}")' in text for region in pair.regions)


@pytest.mark.parametrize("pair", TENTH, ids=lambda pair: pair.name)
def test_inputs_for_a_gpu_fit_their_results(pair: Pair) -> None:
    """The sizes that only a GPU can run; both CUDA versions launch the same grid."""
    lab = PaperLab()
    case = pair.make(lab)
    assert case.expected is not None
    assert np.isfinite(case.expected).all()
    assert all(output.shape == case.expected.shape for output in case.outputs.values())
    assert sum(one.nbytes for one in lab.uploads) < 400e6
    if pair.language == "CUDA":
        for run in case.run.values():
            run()
        assert len(set(lab.grids)) == 1


@needs_nvrtc
@pytest.mark.parametrize("repaired", [0, 1])
@pytest.mark.parametrize("name", [pair.kernel for pair in TENTH if pair.language == "CUDA"])
def test_registers_spill_only_where_that_is_the_cause(name: str, repaired: int) -> None:
    options = [f"-DREPAIRED={repaired}", "-DWARPLENS=0", *cuda_includes()]
    taken = read_cubin(compile_cubin((KERNELS / f"{name}.cu").read_text(), f"{name}.cu", "sm_90a", options))
    spills = name == "path_baskets" and not repaired
    assert (taken is None) == spills, "what a kernel takes is only known where it uses no local memory"
    if taken is not None and name == "path_baskets":
        assert taken.registers > 80, "which is what a path needs"


def test_a_warp_has_most_of_the_reads() -> None:
    lab = PaperLab()
    OF["read_sketches"].make(lab)
    lengths = lab.uploads[2].reshape(-1, 8, 8)
    assert (np.diff(lengths.reshape(-1, 64)) >= 0).all()
    work = -(-(lengths - 15) // 32)
    shares = work.sum(axis=2).max(axis=1) / work.sum(axis=(1, 2)) * 8
    assert 5.5 < shares.mean() < 6.5
    longest = work.max(axis=(1, 2)) / work.sum(axis=(1, 2)) * 8
    assert longest.max() < 1.05, "one read is no more than a warp's share"


def test_the_first_programs_have_the_most_entries() -> None:
    lab = PaperLab()
    OF["row_ranges"].make(lab)
    first, bounds = lab.uploads[0], lab.uploads[-2:]
    steps = np.concatenate([[0], np.cumsum(-(-np.diff(first) // 128))])
    uneven, even = (np.diff(steps[bound]) for bound in bounds)
    assert uneven.argmax() < 10
    assert uneven.max() > 3 * uneven.mean()
    assert even.max() < 1.1 * even.mean()


def test_neighbours_are_uneven_in_a_round_and_even_in_the_sum() -> None:
    lab = PaperLab()
    OF["shared_neighbours"].make(lab)
    first, _, pairs = lab.uploads[:3]
    work = -(-np.diff(first)[pairs[:, 1]] // 32).reshape(264, 64, 8)
    by_round, by_warp = work.max(axis=2).sum(axis=1), work.sum(axis=1).max(axis=1)
    assert by_round.mean() > 2 * by_warp.mean()


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    pytest.importorskip("triton")
    from benchmarks.truth import tenth_kernels as kernels
    from tests.support.triton_examples import Job

    found = {}
    for repaired, version in enumerate((BROKEN, REPAIRED)):
        scores = {"q": "*fp16", "pool": "*fp16", "table": "*i32", "out": "*fp32", "pages": "i32", "scale": "fp32"}
        shape = {"PAGES": 4 if repaired else 1, "TOKENS": 16, "HEAD": 128}
        found[f"page_scores {version}"] = Job(kernels.page_scores, scores, shape, {"num_warps": 4})
        trimers = {"BINS": 64, "BY_PROGRAM": bool(repaired), "BLOCK": 512}
        found[f"trimer_counts {version}"] = Job(
            kernels.trimer_counts, {"reads": "*i32", "counts": "*i32"}, trimers, {"num_warps": 4}
        )
    image = dict.fromkeys(("image", "weights", "out"), "*fp32") | {"height": "i32", "width": "i32"}
    blur = {"TAPS": 9, "ROWS": 32, "COLUMNS": 64}
    found["vertical_blur"] = Job(kernels.vertical_blur, image, blur, {"num_warps": 4})
    paths, walk = {"seeds": "*i32", "payoffs": "*fp32", "tiles": "i32"}, {"STEPS": 60, "BLOCK": 8192}
    found["vol_paths"] = Job(kernels.vol_paths, paths, walk, {"num_warps": 32})
    rows = dict.fromkeys(("first", "columns", "bounds"), "*i32") | dict.fromkeys(("values", "x", "y"), "*fp32")
    found["row_ranges"] = Job(kernels.row_ranges, rows, {"BLOCK": 128}, {"num_warps": 4})
    planes = {"rgb": "*fp32", "yuv": "*fp32", "count": "i32"}
    found["yuv_planes"] = Job(kernels.yuv_planes, planes, {"BLOCK": 1024}, {"num_warps": 4})
    return found


BOTH_WAYS = ("page_scores", "trimer_counts")


@pytest.mark.parametrize(
    "name",
    [*(f"{kernel} {v}" for kernel in BOTH_WAYS for v in (BROKEN, REPAIRED)),
     "vertical_blur", "vol_paths", "row_ranges", "yuv_planes"],
)  # fmt: skip
def test_a_triton_kernel_compiles_for_a_gpu_with_marks(name: str, jobs: dict[str, Any]) -> None:
    from warplens.weave.weaving import Weaving

    plain, woven = jobs[name].woven(90, Weaving())
    assert plain.spills == 0 == woven.resources.spills
    if name == "vol_paths":
        assert plain.registers > 32, "so an SM has room for one program of 1,024 threads"


def test_both_ways_to_count_are_atomics_of_their_own(jobs: dict[str, Any]) -> None:
    """For each thread: 40 atomics on global memory, or one after the histograms."""
    counts = [jobs[f"trimer_counts {v}"].compile(90).asm["ptx"].count("atom.global") for v in (BROKEN, REPAIRED)]
    assert counts == [40, 1]
