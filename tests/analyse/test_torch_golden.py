"""A real run of examples/torch/layer.py on an H200: torch.profiler's export and warplens's trace, merged here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import warplens as wl
from tests.support.merged_trace import KERNELS, REGIONS, assert_contained
from tests.support.trace_processor import TraceProcessor
from warplens.analyse.torch.alignment import Aligned, align
from warplens.analyse.torch.kineto import read_torch
from warplens.analyse.torch.operators import summarise
from warplens.trace.model import Trace

HERE = Path(__file__).parents[1] / "golden" / "torch"
TORCH = HERE / "layer.torch.json.gz"
STEPS = 4


@pytest.fixture(scope="module")
def trace() -> Trace:
    return wl.load(HERE / "layer.warplens")


@pytest.fixture(scope="module")
def aligned(trace: Trace) -> Aligned:
    return align(trace, read_torch(TORCH))


def test_every_kernel_contains_its_regions(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "m.pftrace", torch=TORCH)
    processor = TraceProcessor(tmp_path / "m.pftrace")
    found = assert_contained(processor)
    assert found["matched"] == 2 * STEPS
    assert found["error_ns"] < 400
    assert found["out_ns"] < -300, "regions lie well inside their kernels, as on the GPU"
    regions = processor.query(REGIONS)
    assert len(regions) == len(trace)
    kernels = processor.query(KERNELS)
    assert sum(row["name"] == "row_softmax" for row in kernels) == STEPS
    assert {row["process"] for row in kernels} == {"GPU 0 NVIDIA H200 (PyTorch)"}
    steps = processor.query("select name, depth from slice where category = 'user_annotation' and name like 'step %'")
    assert [row["name"] for row in steps] == [f"step {number}" for number in range(STEPS)]


def test_host_times_and_kernel_times_agree(trace: Trace, aligned: Aligned) -> None:
    meta = replace(trace.meta, launches=tuple(replace(info, extra={}) for info in trace.meta.launches))
    by_time = align(Trace(trace.spans, meta), aligned.torch)
    assert aligned.alignments[0].method == "host"
    assert by_time.alignments[0].method == "time"
    assert by_time.kernels == aligned.kernels


def test_half_of_the_launches_predict_the_others(trace: Trace, aligned: Aligned) -> None:
    half = align(trace.select(launch=range(0, 2 * STEPS, 2)), aligned.torch)
    assert len(half.kernels) == STEPS
    both = aligned.alignments[0].line, half.alignments[0].line
    infos = trace.meta.launches
    times = np.array([info.begin_ns for info in infos]) + trace.meta.origin_ns
    assert np.abs(both[0](times) - both[1](times)).max() < half.error_ns


def test_the_operator_table(aligned: Aligned) -> None:
    found = summarise(aligned.torch, list(aligned.kernels.values()))
    rows = {one.name: one for one in found.operators}
    assert (rows["aten::mm"].calls, rows["aten::matmul"].calls) == (2 * STEPS, 2 * STEPS)
    assert rows["aten::matmul"].cuda_ns == rows["aten::mm"].self_cuda_ns > 0
    assert rows["aten::matmul"].self_cuda_ns == 0
    assert rows["[warplens]"].calls == 2 * STEPS
    assert "aten::zeros" not in rows, "the buffers' clearing is warplens's own"
    kernels = {one.name: one for one in found.kernels}
    assert {name: one.recorded for name, one in kernels.items() if one.recorded} == {
        "row_softmax": STEPS,
        "scaled_add": STEPS,
    }
    on_gpu = [one for one in aligned.torch.slices if one.on_gpu and one.category != "gpu_user_annotation"]
    everything = sum(one.end - one.start for one in on_gpu)
    assert sum(one.cuda_ns for one in found.kernels) == everything
    assert sum(one.self_cuda_ns for one in found.operators) == everything
    assert 0 < found.peak_bytes[0] < 64 << 20, "without warplens's buffers"
