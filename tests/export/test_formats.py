"""The suffix picks the format; tables and call trees hold what the trace holds."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from tests.support.builders import Span, make_trace
from warplens.errors import UsageError, WarplensError
from warplens.formats import FORMATS
from warplens.trace.model import Trace


@pytest.fixture
def trace() -> Trace:
    """Two warps of one launch and one of another: `outer` holds `inner` twice."""
    spans = []
    for warp, launch in ((0, 0), (1, 0), (0, 1)):
        spans += [
            Span("outer", 0, 100, warp=warp, launch=launch),
            Span("inner", 10, 20, warp=warp, launch=launch),
            Span("inner", 40, 30, warp=warp, launch=launch),
            Span("point", 50, kind="instant", warp=warp, launch=launch),
            Span("inner", 200, 5, warp=warp, launch=launch),
        ]
    return make_trace(spans)


def test_tables_hold_every_row_and_column(trace: Trace, tmp_path: Path) -> None:
    assert pq.read_table(trace.export(tmp_path / "t.parquet")).to_pylist() == trace.spans.to_pylist()
    read = csv.read_csv(trace.export(tmp_path / "t.csv")).to_pylist()
    assert [{**row, "value": None} for row in read] == trace.spans.to_pylist()


def tree(path: Path) -> dict[tuple[str, ...], dict[str, float]]:
    found: dict[tuple[str, ...], dict[str, float]] = {}

    def visit(node: dict[str, Any], above: tuple[str, ...]) -> None:
        here = (*above, node["frame"]["name"])
        found[here] = node["metrics"]
        for child in node["children"]:
            visit(child, here)

    visit(json.loads(path.read_text())[0], ())
    return found


def test_hatchet_holds_exclusive_cycles_averaged_over_warps(trace: Trace, tmp_path: Path) -> None:
    found = tree(trace.export(tmp_path / "t.hatchet"))
    assert found == {
        ("ROOT",): {"cycles": 0, "normalized_cycles": 0},
        ("ROOT", "kernel"): {"cycles": 0, "normalized_cycles": 0},
        ("ROOT", "kernel", "outer"): {"cycles": 3 * 100, "normalized_cycles": 2 * 100},
        ("ROOT", "kernel", "outer", "inner"): {"cycles": 3 * 100, "normalized_cycles": 2 * 100},
        ("ROOT", "kernel", "inner"): {"cycles": 3 * 10, "normalized_cycles": 2 * 10},
    }


def test_hatchet_leaves_out_open_spans_and_folds_deep_ones(tmp_path: Path) -> None:
    spans = [Span(f"r{depth}", depth, 3000 - 2 * depth, depth=depth) for depth in range(1200)]
    spans += [Span("cut", 5000, 10, open=True)]
    found = tree(make_trace(spans).export(tmp_path / "t.hatchet"))
    assert sum(metrics["cycles"] for metrics in found.values()) == 2 * 3000
    assert found["ROOT", "kernel", "cut"]["cycles"] == 0
    assert max(map(len, found)) < 300


def test_proton_viewer_reads_hatchet(trace: Trace, tmp_path: Path) -> None:
    pytest.importorskip("hatchet", reason="proton-viewer needs llnl-hatchet; pip install llnl-hatchet")
    pytest.importorskip("triton.profiler.viewer", reason="triton ships proton-viewer; pip install triton")
    path = trace.export(tmp_path / "t.hatchet")
    command = [sys.executable, "-m", "triton.profiler.viewer", "-m", "normalized_cycles", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in shown.splitlines() if line.strip()]
    assert [(words[-2], words[-1]) for words in lines] == [
        ("420.000", "ROOT"), ("420.000", "kernel"), ("20.000", "inner"), ("400.000", "outer"), ("200.000", "inner")
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [name for name, one in FORMATS.items() if one.writer.startswith("warplens.export.")])
def test_an_empty_trace_and_overwriting(suffix: str, tmp_path: Path) -> None:
    path = make_trace([]).export(tmp_path / f"T{suffix.upper()}")
    assert path.stat().st_size > 0
    make_trace([]).export(path, force=True)
    with pytest.raises(WarplensError, match="already exists"):
        make_trace([]).export(path)


@pytest.mark.parametrize("use_native", ["1", "0"])
@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_a_full_disk_leaves_nothing_behind(
    suffix: str, use_native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPLENS_NATIVE", use_native)
    trace = make_trace([Span("a", 10 * at, 5) for at in range(20_000)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(WarplensError, match="cannot be written"):
            trace.export(tmp_path / f"t{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_unknown_suffixes_say_what_is_allowed(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.pftrac'.*did you mean '\.pftrace'.*\.json\.gz"):
        trace.export(tmp_path / "out.pftrac")
    with pytest.raises(UsageError, match=r"no exporter for '\.xyz'; use one of \.pftrace"):
        trace.export(tmp_path / "out.xyz")
    with pytest.raises(UsageError, match="this name has none"):
        trace.export(tmp_path / "out")
    with pytest.raises(WarplensError, match="does not exist"):
        trace.export(tmp_path / "missing" / "out.csv")
