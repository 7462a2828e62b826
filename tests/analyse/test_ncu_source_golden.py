"""Real source pages of an H200 (ncu of CUDA 13, 2026-11-15): a Triton attention and a CUDA kernel with direct marks.

Each page has two launches, one of which ran other machine code than the trace: the kernel without marks, or with other
marks. Recorded by benchmarks/verify_on_gpu.py.
"""

from __future__ import annotations

import gzip
import json

import pytest

from tests.support.builders import make_trace
from tests.support.paths import GOLDEN
from warplens.analyse.ncu_source import parse_source_pages
from warplens.analyse.region_counters import BY_ADDRESS, AttributedPages, region_counters
from warplens.record.capture import MACHINE_CODE
from warplens.trace.schema import LaunchInfo, Meta


def attributed(name: str, kernel: str) -> AttributedPages:
    verification = json.loads((GOLDEN / "ncu" / f"{name}_verification.json").read_text())
    (digest,) = verification
    meta = Meta(launches=(LaunchInfo(0, kernel, extra={MACHINE_CODE: digest}),), verification=verification)
    pages = parse_source_pages(gzip.decompress((GOLDEN / "ncu" / f"{name}_source.csv.gz").read_bytes()).decode())
    assert len(pages) == 2
    return region_counters(make_trace([("x", 0, 1)], meta=meta), pages)


def test_the_regions_of_an_attention_have_their_products_and_stalls() -> None:
    found = attributed("attention", "triton_flash")
    rows = {one.region: one for one in found.regions}
    assert list(rows) == ["load q", "qk", "softmax", "pv", "store"]
    assert {one.basis for one in found.regions} == {BY_ADDRESS}
    # 16 heads of 1,024 queries and keys with 64 numbers each: two products of 2 * 16 * 1024 * 1024 * 64.
    assert rows["qk"].flops == rows["pv"].flops == 2 * 16 * 1024 * 1024 * 64
    assert next(iter(rows["load q"].stall_shares)) == "long_scoreboard"
    assert rows["softmax"].share == pytest.approx(0.357, abs=0.001)
    assert found.notes == ("triton_flash: 1 of 2 launches ran other machine code and were left out",)


def test_the_regions_of_a_cuda_kernel_wait_for_what_they_do() -> None:
    rows = {one.region: one for one in attributed("direct", "gpu_work").regions}
    tops = {name: next(iter(one.stall_shares)) for name, one in rows.items()}
    assert tops == {"load": "long_scoreboard", "wait": "barrier", "math": "wait"}
    # 132 blocks of 256 threads, 16 steps of 16 multiply-adds.
    assert rows["math"].flops == 132 * 256 * 16 * 16 * 2
    # Each warp loads 128 bytes per step: four sectors, and one more for each record of eight bytes.
    assert rows["load"].sectors == 132 * 8 * 16 * (4 + 1)
