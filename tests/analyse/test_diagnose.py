"""The diagnosis: each trouble is named when it is there, and only then; what is not known is said to be unknown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from warplens.analyse.kernel_issues import CLEAR, FOUND, NAMES, UNKNOWN, ResultCheck

from tests.support.builders import Span, make_trace
from warplens.analyse.diagnose import KnownFacts, diagnose
from warplens.analyse.ncu import NcuKernel, parse_ncu
from warplens.commands import main
from warplens.decode.trace_loader import load
from warplens.errors import UsageError, WarplensError
from warplens.trace.model import Trace

MEMORY, OCCUPANCY, DURATION, NUMERICAL = NAMES
SMS, LENGTH = 132, 100_000
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "attention"


def trace(spans: list[Span], **extra: int) -> Trace:
    """On an H200; `extra` is what the launch says of its resources."""
    made = make_trace(spans)
    launches = tuple(replace(info, block=(512, 1, 1), extra=extra) for info in made.meta.launches)
    devices = {"0": {"name": "NVIDIA H200", "capability": "9.0", "sm_count": SMS}}
    return Trace(made.spans, replace(made.meta, launches=launches, devices=devices))


def busy(warps: int = 16, blocks: int = SMS) -> list[Span]:
    """Every warp works all the time."""
    return [Span("work", 0, LENGTH, block, warp) for block in range(blocks) for warp in range(warps)]


def verdicts(made: Trace, **given: object) -> dict[str, str]:
    return {issue.name: issue.verdict for issue in diagnose(made, given=KnownFacts(**given)).issues}


def test_a_healthy_kernel_is_clear_of_everything_that_can_be_known() -> None:
    # 100 µs: 384 MB are 80 % of what an H200 can move in them.
    given = {"bytes": 384e6, "flops": 384e6, "checked": ResultCheck(error=1e-3, tolerance=4e-3)}
    assert set(verdicts(trace(busy()), **given).values()) == {CLEAR}
    one = diagnose(trace(busy()), given=KnownFacts(**given))
    assert one.bound == "memory"
    assert "on the memory roof" in one.moves
    assert verdicts(trace(busy())) == {MEMORY: UNKNOWN, OCCUPANCY: CLEAR, DURATION: CLEAR, NUMERICAL: UNKNOWN}


@pytest.mark.parametrize(("moved", "flops", "verdict"), [(48e6, 48e6, FOUND), (240e6, 1e6, CLEAR), (48e6, 48e9, CLEAR)])
def test_low_memory_throughput_is_an_issue_only_where_memory_is_the_roof(
    moved: float, flops: float, verdict: str
) -> None:
    """10 % of the peak; 50 % of it; and 10 % at an intensity right of the ridge."""
    assert verdicts(trace(busy()), bytes=moved, flops=flops)[MEMORY] == verdict


def test_only_what_was_not_given_is_asked_for() -> None:
    trace = make_trace([Span("load", 0, 100)])
    said = {moved: diagnose(trace, given=KnownFacts(bytes=moved)).issues[0].what for moved in (None, 1e6)}
    assert ("(--bytes)" in said[None], "(--ceilings)" in said[None]) == (True, True)
    assert ("(--bytes)" in said[1e6], "(--ceilings)" in said[1e6]) == (False, True)


def test_scattered_loads_are_named_by_nsight_compute_with_or_without_bytes() -> None:
    ncu = NcuKernel("kernel", sectors=31.9, load_efficiency=0.06)
    for given in ({}, {"bytes": 48e6}):
        issue = diagnose(trace(busy()), given=KnownFacts(ncu=ncu, **given)).issues[0]
        assert issue.verdict == FOUND
        assert "31.9 sectors" in issue.what
        assert "6.0 % of the loaded bytes used" in issue.what
    wide = NcuKernel("kernel", sectors=16.0, load_efficiency=1.0)
    assert verdicts(trace(busy()), ncu=wide)[MEMORY] == UNKNOWN, "16 sectors are 16 bytes for each of 32 lanes"


def test_low_occupancy_names_its_limiter_unless_the_kernel_is_at_its_roof() -> None:
    made = trace(busy(warps=1), registers=40, shared_bytes=200 << 10)
    one = diagnose(made)
    issue = one.issues[1]
    assert issue.verdict == FOUND
    assert issue.evidence["limiter"] == "shared memory"
    assert issue.evidence["achieved"] == pytest.approx(1 / 64, rel=0.01)
    assert verdicts(made, flops=0.7 * 989.4e12 * 1e-4)[OCCUPANCY] == CLEAR, "70 % of the roof with one warp is fine"


def test_blocks_that_take_turns_are_called_serialised() -> None:
    step = LENGTH // 100
    spans = [
        span
        for block in range(100)
        for span in (
            Span("wait turn", 0, block * step + 1, block),
            Span("work", block * step + 1, step - 1, block),
            Span("wait turn", (block + 1) * step, LENGTH - (block + 1) * step, block),
        )
    ]
    issue = diagnose(trace(spans)).issues[2]
    assert issue.verdict == FOUND
    assert "serialised" in issue.what
    assert "`wait turn`" in issue.what
    assert issue.evidence["working_warps"] == pytest.approx(1.0, abs=0.1)
    other = [replace(span, region=span.region.replace("wait turn", "spun")) for span in spans]
    assert diagnose(trace(other)).issues[2].verdict == CLEAR, "a name that does not say so"
    assert diagnose(trace(other), given=KnownFacts(waits_like="spun")).issues[2].verdict == FOUND


def test_few_blocks_and_late_kernels_take_long() -> None:
    few = diagnose(trace(busy(blocks=33))).issues[2]
    assert few.verdict == FOUND
    assert "33 of 132 SMs" in few.what
    assert verdicts(trace(busy()), expected_ns=LENGTH / 10)[DURATION] == FOUND
    assert verdicts(trace(busy()), expected_ns=LENGTH / 1.5)[DURATION] == CLEAR


def test_numbers_that_are_none_are_found_in_values_and_in_results() -> None:
    values = [
        Span("row sum", 5, 0, block, kind="value", value=float("inf") if block == 7 else 1.0) for block in range(9)
    ]
    issue = diagnose(trace([*busy(), *values])).issues[3]
    assert issue.verdict == FOUND
    assert "1 of 9 recorded values are NaN or Inf, first `row sum` in block 7, warp 0" in issue.what
    fine = [replace(value, value=1.0) for value in values]
    assert verdicts(trace([*busy(), *fine]))[NUMERICAL] == CLEAR
    wrong = ResultCheck("3 of 9 values are NaN")
    assert verdicts(trace(busy()), checked=wrong)[NUMERICAL] == FOUND


def test_nsight_compute_decides_the_bound_and_the_stalls() -> None:
    ncu = NcuKernel("kernel", compute=0.75, memory=0.13, stalls={"long_scoreboard": 0.8, "barrier": 0.2})
    one = diagnose(trace(busy()), given=KnownFacts(ncu=ncu))
    assert (one.bound, one.stalls_from) == ("compute", "ncu")
    assert list(one.stalls)[:2] == ["memory dependency", "synchronization"]
    waiting = [Span("wait", 0, LENGTH // 4, block, 0) for block in range(SMS)]
    own = diagnose(trace([*waiting, *(Span("work", LENGTH // 4, 3 * LENGTH // 4, block) for block in range(SMS))]))
    assert own.stalls == pytest.approx({"wait": 0.25}, rel=0.01)


def test_a_trace_without_spans_or_with_another_kernel_is_refused() -> None:
    with pytest.raises(WarplensError, match="no spans"):
        diagnose(trace([Span("x", 0, 0, kind="instant")]))
    with pytest.raises(UsageError, match="did you mean 'kernel'"):
        diagnose(trace(busy()), kernel="kernal")


def test_the_command_prints_json_and_fails_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.warplens"
    trace(busy(warps=1), registers=40, shared_bytes=200 << 10).save(path)
    assert main(["diagnose", str(path), "--bytes", "240M", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["diagnoses"]
    assert [issue["verdict"] for issue in document["issues"]] == [CLEAR, FOUND, CLEAR, UNKNOWN]
    assert main(["diagnose", str(path), "--fail"]) == 3
    for wrong in ("soon", "infs", "-3ms"):
        assert main(["diagnose", str(path), f"--expected={wrong}"]) == 2
    assert main(["diagnose", str(path), "more"]) == 2
    assert main(["diagnose"]) == 2


CPU = """
import warplens as wl
from warplens import samples, session

class Pending:
    def collect(self):
        return samples.simulated(32).capture.launches[0]
    def free(self):
        pass

def run():
    profile = session.active()
    if profile is not None:
        profile.add(Pending())
    return samples.np.array([1.0, float("nan") if IMPL == "nan" else 1.0])

@wl.benchmark(x="n", values=[1], lines={"impl": ["nan", "fine", "silent", "skipped", "a/b"]}, fixed={"dtype": "int64"},
              device="cpu")
def case(n, impl, dtype):
    global IMPL
    IMPL = impl
    if impl == "skipped":
        return wl.Case(skip="not today")
    return wl.Case((lambda: 1.0) if impl == "silent" else run, flops=1e9, bytes=1e6)
"""


def test_a_benchmark_is_timed_checked_profiled_and_diagnosed_in_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "bench_cpu.py", tmp_path / "traces"
    file.write_text(CPU)
    assert main(["diagnose", str(file), "-o", str(folder), "--json", "--impl", "nan,fine,silent,skipped"]) == 0
    out, err = capsys.readouterr()
    found = {one["of"]: one for one in json.loads(out)["diagnoses"]}
    assert list(found) == ["nan at 1", "fine at 1"]
    numerical = {name: one["issues"][3] for name, one in found.items()}
    assert numerical["nan at 1"]["verdict"] == FOUND
    assert "1 of 2 values are NaN" in numerical["nan at 1"]["what"]
    assert numerical["fine at 1"]["verdict"] != FOUND
    assert "skipped at 1: skipped: not today" in err
    assert "silent at 1: " in err
    assert sorted(path.name for path in folder.iterdir()) == ["case_fine_1.warplens", "case_nan_1.warplens"]
    assert main(["diagnose", str(file), "-o", str(folder), "--impl", "fine"]) == 1, "existing traces are kept"
    assert main(["diagnose", str(file), "--impl", "silent"]) == 1
    assert main(["diagnose", str(file), "--impl", "fien"]) == 2
    assert main(["diagnose", str(file), "--flops", "1"]) == 2
    assert main(["diagnose", str(file), "--impl", "fine", "--expected", "soon"]) == 2


def test_each_combination_of_a_benchmark_is_kept_apart_and_held_against_the_roof_of_its_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder, roofs = tmp_path / "bench_cpu.py", tmp_path / "traces", tmp_path / "roofs.json"
    file.write_text(CPU)
    roofs.write_text('{"device": "x", "measured": {"bandwidth": 1e3, "fp32": 1e3, "fp16": 2e3}}')
    words = ["diagnose", str(file), "-o", str(folder), "--impl", "a/b", "--ceilings", str(roofs), "--json"]
    assert main([*words, "--dtype", "int64,float16"]) == 0
    found = {one["of"]: one["roofline"] for one in json.loads(capsys.readouterr().out)["diagnoses"]}
    assert {name: (point["flops"], point["ceilings"]["dtype"]) for name, point in found.items()} == {
        "a/b at 1, dtype int64": (None, "fp32"), "a/b at 1, dtype float16": (1e9, "fp16"),
    }  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == [
        "case_a_b_1_dtype=float16.warplens", "case_a_b_1_dtype=int64.warplens",
    ]  # fmt: skip


def test_sectors_are_read_as_metrics_of_their_own_or_from_those_of_a_full_set() -> None:
    sectors = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    used = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
    page = f'"ID","Kernel Name","{sectors}","{used}"\n"","","sector","%"\n"0","uncoalesced(int)","31.5","6.25"\n'
    (kernel,) = parse_ncu(page)
    assert (kernel.sectors, kernel.load_efficiency) == (31.5, 0.0625)
    (kernel,) = parse_ncu((GOLDEN / "uncoalesced.ncu.csv").read_text())
    assert kernel.sectors == pytest.approx(36_700_160 / 2_228_224)
    assert kernel.load_efficiency == pytest.approx(3.71 / 32)


WORK = {"decode": (134217728, 134742016, "fp16"), "uncoalesced": (134217728, 134742016, "fp16")}
"""FLOPs, bytes and type of the kernels of examples/attention/broken at length 256; the others' is below."""
ROWS = (4294967296, 33554432, "fp32")
TROUBLE = {
    "decode": [],
    "uncoalesced": [MEMORY],
    "rows": [],
    "low_occupancy": [OCCUPANCY],
    "serialised": [DURATION],
    "overflowing": [NUMERICAL],
}


@pytest.mark.parametrize("name", TROUBLE)
def test_real_kernels_with_one_thing_wrong_are_named_for_it_and_for_nothing_else(name: str) -> None:
    """Traces of an H200: the broken attention kernels and the two repaired ones."""
    flops, moved, dtype = WORK.get(name, ROWS)
    double = 2 if name == "serialised" else 1
    given = KnownFacts(flops=flops * double, bytes=moved * double, dtype=dtype)
    one = diagnose(load(GOLDEN / f"{name}.warplens"), given=given)
    assert [issue.name for issue in one.found] == TROUBLE[name]
    assert all(issue.advice for issue in one.found)
    if name == "low_occupancy":
        assert one.found[0].evidence["limiter"] == "shared memory"


def test_nsight_compute_and_the_trace_agree_on_the_uncoalesced_kernel() -> None:
    (ncu,) = parse_ncu((GOLDEN / "uncoalesced.ncu.csv").read_text())
    flops, moved, _ = WORK["uncoalesced"]
    one = diagnose(load(GOLDEN / "uncoalesced.warplens"), given=KnownFacts(flops=flops, bytes=moved, ncu=ncu))
    assert "11.6 % of the loaded bytes used" in one.found[0].what
    assert next(iter(one.stalls)) == "memory throttle"
    assert ncu.duration_ns == pytest.approx(one.time_ns, rel=0.02)
    assert ncu.achieved == pytest.approx(one.occupancy.share, abs=0.1)
    assert ncu.dram_bytes == pytest.approx(moved, rel=0.03)
