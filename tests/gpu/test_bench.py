"""The benchmark harness on a real GPU: timers, caches, memory, the roof, and rows that go wrong."""

from __future__ import annotations

from typing import Any

import pytest

import warplens as wl
from warplens.bench import Results

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

KINDS = ["add", "nan", "huge", "inplace", "raises", "chain"]


@wl.benchmark(x="mib", values=[256], lines={"kind": KINDS}, fixed={"dtype": "float32"}, rel_dev=0.01, timeout=1.5)
def vector(mib: int, kind: str, dtype: str) -> wl.Case:
    count = mib * 2**20 // 4
    if kind == "huge":
        return wl.Case(lambda: torch.empty(2**44, device="cuda"))
    x = torch.randn(count, device="cuda", dtype=getattr(torch, dtype))
    work: dict[str, Any] = {
        "add": lambda x: x + 1,
        "nan": lambda x: x + float("nan"),
        "inplace": lambda x: x.add_(1),
        "raises": lambda x: x + torch.ones(3, device="cuda"),
        "chain": lambda x: x.mul(2).add(1).sub(1).mul(0.5).add(1),
    }
    return wl.Case(work[kind], (x,), flops=count, bytes=8 * count, reference=lambda x: x.double() + 1)


@pytest.fixture(scope="module")
def found() -> Results:
    results = vector.run()
    print(results.to_markdown())
    return results


def test_each_row_says_what_became_of_it(found: Results) -> None:
    notes = {row.line: (row.status, row.note) for row in found}
    assert notes["add"] == ("ok", "")
    assert notes["nan"] == ("wrong", "67,108,864 of 67,108,864 values are NaN")
    assert notes["huge"][0] == "oom"
    assert notes["inplace"][0] == "wrong"
    assert notes["inplace"][1].startswith("right in the first call, but after timing: relative error")
    assert notes["raises"][0] == "failed"
    assert "RuntimeError" in notes["raises"][1]
    assert notes["chain"][0] == "ok"


def test_bandwidth_memory_and_roof(found: Results) -> None:
    add = found.row(kind="add")
    assert add.extra_bytes == 256 * 2**20
    assert add.peak_bytes == 2 * 256 * 2**20
    assert add.gbps is not None
    assert found.row(kind="chain").median_ns > 3 * (add.median_ns or 0)  # type: ignore[operator]
    if "H200" in found.machine["device"]:
        assert 0.6 < (add.of_roof or 0) < 1.0
        assert add.bound == "memory"
        assert found.machine["driver"]
        assert add.clock_mhz is not None


@pytest.mark.parametrize("cache", ["flush", "rotate", "warm"])
def test_small_vectors_are_faster_from_l2_and_graphs_agree_with_events(cache: str) -> None:
    times = {}
    for timer in ("events", "graph"):
        results = vector.run({"mib": 8, "kind": ["add", "chain"]}, timer=timer, cache=cache, rel_dev=0.02, timeout=1.0)
        times[timer] = [row.median_ns or 0 for row in results]
        print(timer, cache, times[timer], [row.unmet for row in results], results.machine["empty_event_pair_ns"])
        assert [row.status for row in results] == ["ok", "ok"]
    for events, graph in zip(times["events"], times["graph"], strict=True):
        assert abs(graph - events) < 0.25 * events + 2500
