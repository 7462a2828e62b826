"""The attention examples on a real GPU: right for every type, head size and odd length, fast, and diagnosed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

import warplens as wl  # noqa: E402
from warplens.bench.benchmark_file import load_benchmarks  # noqa: E402
from warplens.bench.benchmark_job import BenchmarkJob  # noqa: E402
from warplens.bench.case_diagnosis import diagnose_row, profile_case  # noqa: E402
from warplens.bench.measurement_method import QUICK  # noqa: E402

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).parents[2] / "examples" / "attention"
sys.path.insert(0, str(EXAMPLES))

from implementations import ANY_DTYPE, IMPLEMENTATIONS, float64, flops, random_inputs  # noqa: E402
from reference import TOLERANCE  # noqa: E402

OURS = ("naive", "tiled", "flash", "triton_flash")
ERROR_ON_THE_GPU = {"fp32": 1e-5, **{name: TOLERANCE[name] for name in ("fp16", "bf16")}}
FIRST = {
    "uncoalesced": "uncoalesced access",
    "low_occupancy": "low occupancy",
    "serialised": "serialised section",
    "overflowing": "numerical problem",
    "decode": "nothing to fix",
    "rows": "nothing to fix",
}


def apart(impl: str, dtype: str, head: int, length: int, causal: bool, profiled: bool = False) -> float:
    inputs = random_inputs(2, 3, length, head, dtype)
    attention = IMPLEMENTATIONS[impl]
    if profiled:
        with wl.profile() as profile:
            out = attention(*inputs, causal)
        assert {row.region for row in profile.trace.stats()} >= {"qk", "pv", "store"}
    else:
        out = attention(*inputs, causal)
    expected = float64(*inputs, causal)
    assert bool(torch.isfinite(out).all())
    return float((out - expected).norm() / expected.norm())


@pytest.mark.parametrize("impl", OURS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_every_kernel_agrees_with_float64_at_every_length(impl: str, dtype: str) -> None:
    if dtype == "fp32" and impl not in ANY_DTYPE:
        pytest.skip(f"{impl} has no fp32")
    for head in (64, 128):
        for length in (1, 63, 64, 130, 257, 1000):
            for causal in (False, True):
                error = apart(impl, dtype, head, length, causal)
                assert error < ERROR_ON_THE_GPU[dtype], (head, length, causal, error)


@pytest.mark.parametrize("impl", OURS)
def test_profiling_changes_no_result(impl: str) -> None:
    for head, causal in ((64, False), (128, True)):
        assert apart(impl, "fp16", head, 300, causal, profiled=True) < ERROR_ON_THE_GPU["fp16"]


def test_the_triton_kernel_reaches_three_quarters_of_the_best_backend() -> None:
    from triton.testing import do_bench

    for head in (64, 128):
        for length in (2048, 8192):
            for causal in (False, True):
                inputs = random_inputs(16384 // length, 32, length, head, "fp16")

                def rate(impl: str, inputs: Any = inputs, causal: bool = causal) -> float:
                    ms = do_bench(lambda: IMPLEMENTATIONS[impl](*inputs, causal), 10, 50, return_mode="median")
                    return flops(*inputs[0].shape, causal) / ms

                best = max(rate(impl) for impl in ("sdpa_cudnn", "sdpa_flash", "sdpa_efficient"))
                assert rate("triton_flash") >= 0.75 * best, (head, length, causal)


def test_each_broken_kernel_is_named_for_its_trouble_and_the_repaired_ones_are_not() -> None:
    (benchmark,) = load_benchmarks(str(EXAMPLES / "broken" / "bench.py"))
    method: dict[str, Any] = dict(QUICK)
    found = {}
    for row in BenchmarkJob([benchmark], **method):
        assert row.timed, row.note
        trace = profile_case(benchmark.make, row.params)
        found[row.line] = diagnose_row(trace, row).findings[0].kind
    assert found == FIRST
