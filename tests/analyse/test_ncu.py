"""Nsight Compute's CSV pages as warplens reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.findings import findings
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.ncu import match_kernel, parse_ncu
from warplens.analyse.ncu_source import parse_source_pages
from warplens.commands import main
from warplens.errors import UsageError, WarplensError
from warplens.runner.nsight_compute import ncu_command, read_ncu

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
RAW_COLUMNS = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "31.5"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "82.0"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "42.0"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "50.0"),
    "launch__occupancy_limit_registers": ("block", "2"),
    "launch__occupancy_limit_shared_mem": ("block", "3"),
    "gpu__time_duration.sum": ("usecond", "1,250.5"),
    "dram__bytes_read.sum": ("Mbyte", "12.5"),
    "dram__bytes_write.sum": ("Kbyte", "500"),
    STALL.format("long_scoreboard"): ("inst", "6.0"),
    STALL.format("barrier"): ("inst", "1.0"),
    STALL.format("wait"): ("inst", "2.0"),
    STALL.format("lg_throttle"): ("inst", "0.5"),
    STALL.format("not_selected"): ("inst", "0.5"),
    STALL.format("selected"): ("inst", "1.0"),
}


def raw_page() -> str:
    quoted = [
        ["ID", "Process ID", "Kernel Name", *RAW_COLUMNS],
        ["", "", "", *(unit for unit, _ in RAW_COLUMNS.values())],
        ["0", "77", "gemm(float *, int)", *(value for _, value in RAW_COLUMNS.values())],
    ]
    return "==PROF== Connected to process 77\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in quoted)


def details_page() -> str:
    rows = [
        ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "21.0"),
        ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "18.5"),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "999"),
        ("Occupancy", "Block Limit Shared Mem", "block", "1"),
        ("Occupancy", "Block Limit Registers", "block", "4"),
        ("Occupancy", "Theoretical Occupancy", "%", "12.5"),
        ("Occupancy", "Achieved Occupancy", "%", "6.1"),
        ("GPU Speed Of Light Throughput", "Duration", "msecond", "2"),
    ]
    header = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
    return "\n".join([header, *(f'"0","gemm","{a}","{b}","{c}","{d}"' for a, b, c, d in rows)])


def test_the_raw_page() -> None:
    (kernel,) = parse_ncu(raw_page())
    assert (kernel.memory, kernel.compute, kernel.bound) == (0.82, 0.315, "memory")
    assert (kernel.achieved, kernel.theoretical, kernel.limiter) == (0.42, 0.5, "registers")
    assert kernel.duration_ns == pytest.approx(1_250_500)
    assert kernel.dram_bytes == pytest.approx(13_000_000)
    assert sum(kernel.stalls.values()) == pytest.approx(1.0)
    assert next(iter(kernel.stalls.items())) == ("long_scoreboard", pytest.approx(0.6))
    assert kernel.groups == pytest.approx(
        {
            "memory dependency": 0.6,
            "execution dependency": 0.2,
            "synchronization": 0.1,
            "memory throttle": 0.05,
            "other": 0.05,
        }
    )


def test_the_details_page() -> None:
    (kernel,) = parse_ncu(details_page())
    assert (kernel.memory, kernel.compute, kernel.bound) == (pytest.approx(0.21), pytest.approx(0.185), "latency")
    assert (kernel.limiter, kernel.duration_ns) == ("shared memory", 2e6)


def test_findings_join_those_of_the_trace_under_its_kernel_name() -> None:
    trace = make_trace([Span("work", 0, 100_000, kernel="gemm")])
    (found,) = findings(trace, given=KnownFacts(ncu=parse_ncu(raw_page())))
    assert (found.kernel, found.kind) == ("gemm", "nothing to fix")
    assert "memory bound, at 82.0 % of its roof" in found.what
    other = make_trace([Span("work", 0, 100_000, kernel="other")])
    (unknown,) = findings(other, given=KnownFacts(ncu=parse_ncu(raw_page())))
    assert "memory bound" not in unknown.what


@pytest.mark.parametrize("text", ["", "hello\nworld", '"a","b"\n"1","2"'])
def test_what_is_no_ncu_page_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(WarplensError, match="--page raw --csv"):
        read_ncu(tmp_path / "x.csv")


def test_reports_without_ncu_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "r.ncu-rep").write_bytes(b"x")
    with pytest.raises(WarplensError, match="developer.nvidia.com/nsight-compute"):
        read_ncu(tmp_path / "r.ncu-rep")
    with pytest.raises(UsageError, match=r"\.ncu-rep"):
        (tmp_path / "r.txt").write_text("")
        read_ncu(tmp_path / "r.txt")
    with pytest.raises(WarplensError, match="no such file"):
        read_ncu(tmp_path / "gone.csv")


def test_ncu_runs_with_the_clock_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "ncu"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ncu_command(["python", "train.py"], "out", kernels="attn.*")
    assert command[0] == str(fake)
    assert command[-2:] == ["python", "train.py"]
    assert "--clock-control none" in " ".join(command)
    assert "--kernel-name regex:attn.*" in " ".join(command)


def test_info_describes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text(raw_page())
    assert main(["info", "--ncu", str(tmp_path / "r.csv")]) == 0
    out = capsys.readouterr().out
    assert "memory dependency 60.0 %" in out
    assert "registers" in out
    assert main(["info", "--ncu", str(tmp_path / "r.csv"), "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (kernel["bound"], kernel["limiter"]) == ("memory", "registers")


def test_stats_merges_a_report_into_the_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text(raw_page())
    make_trace([Span("work", 0, 100_000, kernel="gemm")]).save(tmp_path / "t.warplens")
    assert main(["stats", str(tmp_path / "t.warplens"), "--ncu", str(tmp_path / "r.csv"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["evidence"]["of_roof"] == 0.82


@pytest.mark.parametrize(
    "written",
    ["gemm", "gemm(float *, int)", "void gemm<128, (bool)1>(T1 *)", "void (anonymous namespace)::gemm(int)",
     "void ops::gemm<at::Half, ops::Tile<4>>(ops::View<at::Half>)", "_ZN3ops4gemmEPf"],
)  # fmt: skip
def test_kernels_are_known_by_their_bare_names(written: str) -> None:
    assert match_kernel(written, ["half", "gemm", "T1"]) == "gemm"
    assert match_kernel(written.replace("gemm", "gems"), ["half", "gemm", "T1"]) is None


def test_a_metric_that_is_no_number_is_not_collected() -> None:
    (kernel,) = parse_ncu(raw_page().replace('"31.5"', '"nan"').replace('"6.0"', '"inf"'))
    assert kernel.compute is None
    assert sum(kernel.stalls.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('"Metric Name""ID","Kernel Name"\n"m","k"\n', "has no column ID"),
        ('"ID","Kernel Name","Metric Name"\n"0","' + "x" * 140_000 + '","m"\n', "field larger than"),
    ],
)
def test_a_header_without_the_kernel_and_endless_cells_are_one_error(page: str, said: str) -> None:
    with pytest.raises(WarplensError, match=said):
        parse_ncu(page)


def test_a_source_page_with_an_endless_cell_is_one_error() -> None:
    page = '"Kernel Name","k"\n"Address","Source","Instructions Executed"\n"0x0","' + "x" * 140_000 + '","1"\n'
    with pytest.raises(WarplensError, match="not a CSV page of Nsight Compute: field larger than"):
        parse_source_pages(page)
