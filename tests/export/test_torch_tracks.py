"""The merged Perfetto file, read by Perfetto's own trace_processor: one clock, nothing lost, nothing sticking out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.merged_trace import ALIGNMENT, KERNELS, REGIONS, assert_contained
from tests.support.torch_truth import EPOCH, PID, Run
from tests.support.trace_processor import TraceProcessor
from warplens.analyse.torch.kineto import Slice
from warplens.commands import main
from warplens.errors import UsageError
from warplens.export.torch_tracks import nested_lanes

CPU = """
select s.id, s.name, s.ts, s.dur, s.depth, s.category, parent.name as parent, thread.tid, process.pid,
  process.name as process from slice s
join thread_track on thread_track.id = s.track_id join thread using (utid) join process using (upid)
left join slice parent on parent.id = s.parent_id
where process.name like '%(PyTorch)'
"""
ARROWS = """
select a.name as source, b.name as target, a.ts <= b.ts as forward from flow
join slice a on a.id = flow.slice_out join slice b on b.id = flow.slice_in where b.category != 'launch'
"""
MEMORY = """
select track.name, counter.value, counter.ts, process.name as process from counter
join process_counter_track track on track.id = counter.track_id join process using (upid) order by counter.ts
"""


def make(run: Run, folder: Path, **options: object) -> TraceProcessor:
    torch = run.write_torch(folder / "torch.json")
    run.trace(**options).export(folder / "m.pftrace", torch=torch)  # type: ignore[arg-type]
    return TraceProcessor(folder / "m.pftrace")


def mixed_run(seed: int = 1, drift: float = 1.1e-5) -> Run:
    run = Run(seed, drift=drift)
    for at in range(12):
        run.launch("add", record=at % 3 != 2)
        run.launch("matmul", ns=60_000, record=False)
    return run


def test_everything_comes_back_on_one_clock(tmp_path: Path) -> None:
    run = mixed_run()
    processor = make(run, tmp_path)
    found = assert_contained(processor)
    assert found["unmatched"] == 0
    assert 0 < found["error_ns"] < 1000
    origin = min(one.called for one in run.kernels) - 2_000
    kernels = processor.query(KERNELS)
    assert Counter((row["name"], row["ts"], row["dur"]) for row in kernels) == Counter(
        (one.name, one.start - origin, one.end - one.start) for one in run.kernels
    )
    assert {(row["track"], row["process"]) for row in kernels} == {("stream 7", "GPU 0 NVIDIA H200 (PyTorch)")}
    assert Counter(row["launch"] for row in kernels if row["name"] == "add") == Counter([*range(8), *[None] * 4])
    on_cpu = processor.query(CPU)
    assert Counter((row["name"], row["parent"], row["ts"], row["category"]) for row in on_cpu) == Counter(
        event
        for one in run.kernels
        for event in (
            (f"op::{one.name}", None, one.called - 2_000 - origin, "cpu_op"),
            ("cudaLaunchKernel", f"op::{one.name}", one.called - origin, "cuda_runtime"),
        )
    )
    assert {(row["pid"], row["process"]) for row in on_cpu} == {(PID, "python (PyTorch)")}


def test_regions_keep_their_nesting_names_and_number(tmp_path: Path) -> None:
    run = mixed_run(2, drift=9e-5)
    processor = make(run, tmp_path)
    regions = processor.query(REGIONS)
    assert Counter((row["name"], row["depth"]) for row in regions) == {
        ("all", 0): 8 * 8, ("load", 1): 8 * 8, ("store", 1): 8 * 8
    }  # fmt: skip
    assert {row["process"] for row in regions} == {f"SM {sm}" for sm in range(4)}


def test_arrows_lead_from_the_call_to_its_kernel(tmp_path: Path) -> None:
    run = mixed_run(3)
    arrows = make(run, tmp_path).query(ARROWS)
    assert Counter((row["source"], row["target"]) for row in arrows) == {
        ("cudaLaunchKernel", "add"): 12, ("cudaLaunchKernel", "matmul"): 12
    }  # fmt: skip
    assert all(row["forward"] for row in arrows)


def test_memory_is_a_counter(tmp_path: Path) -> None:
    run = mixed_run(4)
    rows = make(run, tmp_path).query(MEMORY)
    allocated = [row["value"] for row in rows if row["name"] == "memory allocated"]
    assert allocated == [512 * number for number in range(1, 25)]
    assert {row["process"] for row in rows} == {"GPU 0 NVIDIA H200 (PyTorch)"}


def test_the_file_states_its_error_and_where_it_begins(tmp_path: Path) -> None:
    processor = make(mixed_run(5), tmp_path)
    (row,) = processor.query(ALIGNMENT)
    assert row["name"].startswith(f"SM regions ±{row['error_ns']:,.0f} ns over 8 kernels, drift ")
    (began,) = processor.query(
        "select extract_arg(arg_set_id, 'debug.unix_ns_at_zero') as unix from slice where category = 'alignment'"
    )
    assert began["unix"] > EPOCH


def test_process_ids_like_those_of_sms_do_not_mix(tmp_path: Path) -> None:
    """SMs are processes 10000 and on; so may be the program, and its thread may be called like a warp's."""
    run = mixed_run(6)
    document = run.write_torch(tmp_path / "torch.json").read_text()
    (tmp_path / "torch.json").write_text(document.replace(f": {PID}", ": 10001"))
    run.trace().export(tmp_path / "m.pftrace", torch=tmp_path / "torch.json")
    processor = TraceProcessor(tmp_path / "m.pftrace")
    assert_contained(processor)
    assert len(processor.query(CPU)) == 48
    assert {row["process"] for row in processor.query(REGIONS)} == {f"SM {sm}" for sm in range(4)}


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(times=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=30))
def test_lanes_nest(times: list[tuple[int, int]]) -> None:
    slices = sorted(
        (Slice("s", "cpu_op", (1, 1), at, at + ns, {}) for at, ns in times), key=lambda s: (s.start, -s.end)
    )
    lanes = nested_lanes(slices)
    assert sum(map(len, lanes)) == len(slices)
    for lane in lanes:
        for at, one in enumerate(lane):
            for other in lane[:at]:
                assert other.end <= one.start or (other.start <= one.start and one.end <= other.end)


@pytest.mark.parametrize(
    ("written", "instead"),
    [('"grid": [4, 1, 1]', '"grid": "[4,1,1]"'), ("op::add", "op::\\ud800"), ('"correlation"', '"none"')],
)
def test_what_kineto_does_not_say_well_is_left_out(written: str, instead: str, tmp_path: Path) -> None:
    run = mixed_run(7)
    torch = run.write_torch(tmp_path / "torch.json")
    assert written in torch.read_text()
    torch.write_text(torch.read_text().replace(written, instead))
    run.trace().export(tmp_path / "m.pftrace", torch=torch)
    processor = TraceProcessor(tmp_path / "m.pftrace")
    assert_contained(processor)
    assert len(processor.query(KERNELS)) == 24


def test_slices_that_cross_load_without_errors(tmp_path: Path) -> None:
    run = Run(8)
    run.launch()
    document = json.loads(run.write_torch(tmp_path / "torch.json").read_text())
    base = {"ph": "X", "cat": "cpu_op", "pid": 5, "tid": 5}
    for name, ts, dur in (("a", 1000, 10), ("b", 1005, 10), ("c", 1010, 0), ("c", 1010, 0), ("d", 1005, 5)):
        document["traceEvents"].append(base | {"name": name, "ts": ts, "dur": dur})
    (tmp_path / "torch.json").write_text(json.dumps(document))
    run.trace().export(tmp_path / "m.pftrace", torch=tmp_path / "torch.json")
    processor = TraceProcessor(tmp_path / "m.pftrace")
    assert processor.problems() == []
    found = processor.query("select name, dur from slice where name in ('a', 'b', 'c', 'd')")
    assert Counter((row["name"], row["dur"]) for row in found) == {
        ("a", 10_000): 1, ("b", 10_000): 1, ("c", 0): 2, ("d", 5_000): 1
    }  # fmt: skip


def test_the_command_merges_and_says_how_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = mixed_run(9)
    torch = run.write_torch(tmp_path / "torch.json")
    run.trace().save(tmp_path / "t.warplens")
    arguments = ["export", str(tmp_path / "t.warplens"), "--torch", str(torch), "-o", str(tmp_path / "m.pftrace")]
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["alignment"][0]["matched"] == 8
    assert_contained(TraceProcessor(tmp_path / "m.pftrace"))
    assert main(arguments) == 1, "an existing file is not overwritten"
    assert main([*arguments, "--force"]) == 0
    assert "aligned with torch: ±" in " ".join(capsys.readouterr().err.split())
    assert main([*arguments[:-1], str(tmp_path / "m.csv")]) == 2
    assert main([*arguments, "--force", "--torch", str(tmp_path / "no.json")]) == 1


def test_only_a_pftrace_takes_a_torch_trace(tmp_path: Path) -> None:
    run = mixed_run(10)
    with pytest.raises(UsageError, match=r"\.pftrace, not into \.json"):
        run.trace().export(tmp_path / "m.json", torch=run.write_torch(tmp_path / "torch.json"))
