"""The diagnosis: bound, roofline, occupancy and stalls of one kernel, and its findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.diagnose import diagnose
from warplens.analyse.known_facts import KnownFacts, ResultCheck
from warplens.analyse.ncu import NcuKernel, parse_ncu
from warplens.commands import main
from warplens.decode.trace_loader import load
from warplens.errors import UsageError, WarplensError
from warplens.trace.model import Trace

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


def first(made: Trace, **given: object) -> str:
    return diagnose(made, given=KnownFacts(**given)).findings[0].kind


def test_a_healthy_kernel_is_on_its_roof_and_has_nothing_to_fix() -> None:
    # 100 µs: 384 MB are 80 % of what an H200 can move in them.
    given = KnownFacts(bytes=384e6, flops=384e6, checked=ResultCheck(error=1e-3, tolerance=4e-3))
    one = diagnose(trace(busy()), given=given)
    assert one.bound == "memory"
    assert "on the memory roof" in one.moves
    assert [finding.kind for finding in one.findings] == ["nothing to fix"]
    assert "numerical problem" in {finding.kind for finding in one.findings.refuted}


@pytest.mark.parametrize(
    ("moved", "flops", "kind"),
    [(48e6, 48e6, "uncoalesced access"), (240e6, 1e6, "nothing to fix"), (48e6, 0.7 * 989.4e8, "nothing to fix")],
)
def test_low_memory_throughput_matters_only_where_memory_is_the_roof(moved: float, flops: float, kind: str) -> None:
    """10 % of the peak; 50 % of it; and 10 % with compute at 70 % of its peak."""
    spans = [replace(span, region="load") for span in busy()]
    assert first(trace(spans), bytes=moved, flops=flops) == kind


def test_low_occupancy_names_its_limiter_unless_the_kernel_is_at_its_roof() -> None:
    spans = [replace(span, start=span.start + LENGTH * wave, block=span.block + SMS * wave, sm=span.block)
             for wave in range(4) for span in busy(warps=1)]  # fmt: skip
    made = trace(spans, registers=40, shared_bytes=200 << 10)
    one = diagnose(made)
    finding = one.findings[0]
    assert finding.kind == "low occupancy"
    assert finding.evidence["limiter"] == "shared memory"
    assert finding.evidence["warps_per_sm"] == pytest.approx(1.0, rel=0.01)
    assert first(made, flops=0.7 * 989.4e12 * 4e-4) == "nothing to fix", "70 % of the roof with one warp is fine"


def test_a_kernel_that_takes_twice_the_expected_time_is_late() -> None:
    assert diagnose(trace(busy()), given=KnownFacts(expected_ns=LENGTH / 10)).late
    assert not diagnose(trace(busy()), given=KnownFacts(expected_ns=LENGTH / 1.5)).late
    few = diagnose(trace(busy(blocks=33))).findings[0]
    assert few.kind == "too few blocks"
    assert "33 of 132 SMs" in few.what


def test_numbers_that_are_none_come_first() -> None:
    values = [
        Span("row sum", 5, 0, block, kind="value", value=float("inf") if block == 7 else 1.0) for block in range(9)
    ]
    finding = diagnose(trace([*busy(blocks=33), *values])).findings[0]
    assert finding.kind == "numerical problem"
    assert "1 of 9 recorded values are NaN or Inf, first `row sum` in block 7, warp 0" in finding.what
    fine = [replace(value, value=1.0) for value in values]
    assert first(trace([*busy(), *fine])) == "nothing to fix"
    assert first(trace(busy()), checked=ResultCheck("3 of 9 values are NaN")) == "numerical problem"


def test_nsight_compute_decides_the_bound_and_the_stalls() -> None:
    ncu = NcuKernel("kernel", compute=0.75, memory=0.13, stalls={"long_scoreboard": 0.8, "barrier": 0.2})
    one = diagnose(trace(busy()), given=KnownFacts(ncu=(ncu,)))
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
    trace(busy(blocks=33)).save(path)
    assert main(["diagnose", str(path), "--bytes", "24M", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["diagnoses"]
    assert document["findings"][0]["kind"] == "too few blocks"
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
    first = {name: one["findings"][0] for name, one in found.items()}
    assert first["nan at 1"]["kind"] == "numerical problem"
    assert "1 of 2 values are NaN" in first["nan at 1"]["what"]
    assert first["fine at 1"]["kind"] != "numerical problem"
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
FIRST = {
    "decode": "nothing to fix",
    "uncoalesced": "uncoalesced access",
    "rows": "unmarked time",
    "low_occupancy": "low occupancy",
    "serialised": "serialised section",
    "overflowing": "numerical problem",
}


@pytest.mark.parametrize("name", FIRST)
def test_real_kernels_with_one_thing_wrong_are_named_for_it(name: str) -> None:
    """Traces of an H200: the broken attention kernels and the two repaired ones."""
    flops, moved, dtype = WORK.get(name, ROWS)
    double = 2 if name == "serialised" else 1
    given = KnownFacts(flops=flops * double, bytes=moved * double, dtype=dtype)
    assert diagnose(load(GOLDEN / f"{name}.warplens"), given=given).findings[0].kind == FIRST[name]


def test_nsight_compute_and_the_trace_agree_on_the_uncoalesced_kernel() -> None:
    (ncu,) = parse_ncu((GOLDEN / "uncoalesced.ncu.csv").read_text())
    assert ncu.sectors == pytest.approx(36_700_160 / 2_228_224)
    assert ncu.load_efficiency == pytest.approx(3.71 / 32)
    flops, moved, _ = WORK["uncoalesced"]
    one = diagnose(load(GOLDEN / "uncoalesced.warplens"), given=KnownFacts(flops=flops, bytes=moved, ncu=(ncu,)))
    assert "11.6 % of the loaded bytes used" in one.findings[0].what
    assert next(iter(one.stalls)) == "memory throttle"
    assert ncu.duration_ns == pytest.approx(one.time_ns, rel=0.02)
    assert ncu.achieved == pytest.approx(one.occupancy.share, abs=0.1)
    assert ncu.dram_bytes == pytest.approx(moved, rel=0.03)
