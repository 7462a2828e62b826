"""Two blocks of a warp-specialised Gluon matmul, captured on an H200 by benchmarks/barrier_edges.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.paths import GOLDEN
from warplens.analyse.barrier_roles import barrier_roles, warp_duties
from warplens.analyse.critical_path import critical_path
from warplens.decode.trace_loader import load
from warplens.trace.barrier_rows import IMMEDIATE_CYCLES
from warplens.trace.model import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load(GOLDEN / "captures" / "gluon_matmul.wlcap")


def test_every_wait_has_its_arrival_and_none_points_back_in_time(trace: Trace) -> None:
    edges = trace.edges
    kinds = edges["kind"].to_pylist()
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"copy": 256, "arrive": 26}
    wait, arrival = edges["wait"].to_numpy(), edges["arrival_record"].to_numpy()
    start = trace.numpy("start_cycle")
    end = start[wait] + trace.numpy("dur_cycles")[wait]
    assert (start[arrival] < end).all()
    woken = (end - start[arrival])[np.array(kinds) == "arrive"]
    assert 40 <= woken.min() <= woken.max() <= 80, "cycles from the arrival to the end of the wait that it released"


def test_each_use_of_a_stage_has_its_own_copy(trace: Trace) -> None:
    """16 tiles through 3 stages: the waits of all 8 warps for a tile have one copy, and each tile has another."""
    edges, warp = trace.edges.to_pylist(), trace.numpy("warp")
    copies: dict[int, set[int]] = {}
    for edge in edges:
        if edge["kind"] == "copy":
            copies.setdefault(edge["arrival_record"], set()).add(int(warp[edge["wait"]]))
    assert len(copies) == 2 * 16
    assert all(waiters == set(range(8)) for waiters in copies.values())


def test_the_loading_warp_is_the_producer(trace: Trace) -> None:
    roles = {duty.warp: duty.role for duty in warp_duties(trace)}
    assert roles == {10: "producer"} | dict.fromkeys(range(8), "consumer")
    full = [role for role in barrier_roles(trace) if role.kind == "copy"]
    empty = [role for role in barrier_roles(trace) if role.kind == "arrive"]
    assert len(full) == len(empty) == 3
    assert {role.producers for role in full} == {(10,)}
    assert {(role.producers, role.consumers) for role in empty} == {((0,), (10,))}


def test_the_critical_path_goes_through_the_copies(trace: Trace) -> None:
    path = critical_path(trace)["gluon_gemm"]
    assert sum(region.share for region in path.regions) <= 1.0 + 1e-9
    wait, product = path["mbarrier wait plain_kernels.py:273"], path["mma wait plain_kernels.py:275"]
    assert wait.ns > 1000, "the first tile was under way for more than a microsecond"
    assert product.share > 0.2
    assert path["(warp)"].share == 0, "warps without work only wait for the others"


def test_a_cuda_pipeline_with_bulk_copies() -> None:
    """Two blocks of benchmarks/kernels/pipeline.cu: 64 tiles through 3 stages, one warp copies and three add up."""
    trace = load(GOLDEN / "captures" / "cuda_pipeline.wlcap")
    kinds = trace.edges["kind"].to_pylist()
    # The first wait for each of the three stages finds it empty.
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"copy": 2 * 64 * 3, "arrive": 2 * (64 - 3)}
    assert {duty.warp: duty.role for duty in warp_duties(trace)} == {
        0: "producer", 1: "consumer", 2: "consumer", 3: "consumer"
    }  # fmt: skip
    assert all(role.one_way and role.unknown == 0 for role in barrier_roles(trace))
    wait, arrival = trace.edges["wait"].to_numpy(), trace.edges["arrival_record"].to_numpy()
    start = trace.numpy("start_cycle")
    assert (start[arrival] < start[wait] + trace.numpy("dur_cycles")[wait]).all()
    released = trace.edges["arrival_record"].to_numpy()[np.array(kinds) == "arrive"]
    assert len(set(released.tolist())) == len(released), "each phase of an empty stage has its own last arrival"


def test_a_slow_test_of_a_barrier_is_no_wait_for_an_unrecorded_arrival() -> None:
    """Four blocks of the CuTe GEMM of examples/: a busy SM takes up to 600 cycles to test a complete barrier."""
    trace = load(GOLDEN / "captures" / "cute_gemm_barriers.wlcap")
    kinds = trace.edges["kind"].to_pylist()
    # Eight consumer warps wait for 16 tiles; the first wait for each of the four stages finds it empty.
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"copy": 4 * 16 * 8, "arrive": 4 * 16}
    duration = trace.numpy("dur_cycles")[trace.edges["wait"].to_numpy()]
    had_to_wait = trace.edges["waited_ns"].to_numpy() > 0
    assert duration[~had_to_wait].max() > IMMEDIATE_CYCLES
