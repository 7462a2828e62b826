"""The samples of a trace, attributed to regions: by address, else by line; what is missing is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warplens as wl
from tests.support.sass_kernels import STRAIGHT, UNROLLED, code_of, needs_tools, with_lines
from tests.support.verified_trace import traced, verified
from warplens.analyse.finding_text import evidence_text
from warplens.analyse.findings import findings
from warplens.analyse.region_counters import BY_ADDRESS, PC_SAMPLING, PLAIN_BY_LINE
from warplens.analyse.sampled_stalls import sampled_stalls, sampling_line
from warplens.sass.machine_code import MachineCode
from warplens.sass.pc_samples import MAX_ROWS, PcSampling, SampledCode
from warplens.sass.verified_regions import KernelVerification
from warplens.trace.merge import merge
from warplens.trace.model import Trace

pytestmark = needs_tools


def with_samples(trace: Trace, *codes: SampledCode, **numbers: Any) -> Trace:
    taken = sum(one.total for one in codes)
    sampled = PcSampling(codes, **{"taken": taken, "period": 1024, **numbers})
    trace.meta = replace(trace.meta, pc_samples=sampled.to_json())
    return trace


def marked(code: MachineCode, counts: Mapping[int, Mapping[str, int]]) -> SampledCode:
    return SampledCode.of("k", code.digest, counts, sum(sum(each.values()) for each in counts.values()))


def samples_of(code: MachineCode) -> dict[int, dict[str, int]]:
    """Two samples of every instruction of `math`, ten of every one of `load`, one of all others."""
    known = verified(code)
    found = {address: {"not_selected": 1} for address in range(0, 16 * known.instructions, 16)}
    for region, counts in (("math", {"wait": 1, "selected": 1}), ("load", {"long_scoreboard": 9, "wait": 1})):
        for start, end in known[region].ranges:
            found |= {address: dict(counts) for address in range(start, end, 16)}
    return found


def test_code_between_regions_has_its_samples() -> None:
    code = code_of(STRAIGHT, automatic=True)
    known = verified(code)
    work = [f"work k.py:{lines}" for lines in ("10", "12-13", "14")]
    spans = [(name, 10 * at, 10) for at, name in enumerate((work[0], "load", work[1], "store", work[2]))]
    counts = {address: {"wait": 1} for address in range(0, 16 * known.instructions, 16)}
    found = sampled_stalls(with_samples(traced(code, spans), marked(code, counts)))
    rows = {one.region: one for one in found.regions}
    assert set(rows) == {name for name, _, _ in spans}
    assert {rows[name].basis for name in work} == {BY_ADDRESS}
    # From the start's clock read to the exit's, each sample is in one region.
    first, last = min(start for start, _ in known[work[0]].ranges), max(end for _, end in known[work[2]].ranges)
    assert sum(one.samples for one in rows.values()) == (last - first) // 16
    assert all(one.self_samples == one.samples for one in rows.values())
    # Samples of the kernel without marks, by line: only lines that are its own.
    plain = SampledCode.of("k", code.digest, {line: {"wait": 1} for line in range(9, 16)}, 7, plain=True, file="k.py")
    found = sampled_stalls(with_samples(traced(code, spans), plain))
    assert {one.region: one.samples for one in found.regions} == dict.fromkeys(work, 1)
    assert {one.basis for one in found.regions} == {PLAIN_BY_LINE}
    assert found.notes[0] == "k: no source lines of their own, so not attributed: load, store"


def test_samples_of_the_recorded_code_are_summed_by_address() -> None:
    code = code_of(UNROLLED)
    counts = samples_of(code)
    found = sampled_stalls(with_samples(traced(code), marked(code, counts)))
    assert found.notes == ()
    load, math = found.regions
    assert (load.region, load.source, load.basis) == ("load", PC_SAMPLING, BY_ADDRESS)
    size = sum((end - start) // 16 for start, end in verified(code)["load"].ranges)
    assert load.stalls == {"long_scoreboard": 9 * size, "wait": size}
    assert load.share == pytest.approx(10 * size / sum(sum(each.values()) for each in counts.values()))
    assert load.stall_shares == {"long_scoreboard": 0.9, "wait": 0.1}
    assert math.stall_shares == {"wait": 0.5}
    assert load.executed == load.bytes == load.flops == 0


def test_a_trace_without_samples_has_none() -> None:
    trace = traced(code_of(UNROLLED))
    assert (sampled_stalls(trace).regions, sampled_stalls(trace).notes, sampling_line(trace)) == ((), (), "")


def test_launches_without_marks_count_by_line_only_where_no_marked_one_was_sampled() -> None:
    code = with_lines()
    files = {"/home/me/loop.py": {11: {"long_scoreboard": 6}, 13: {"wait": 4}}, "/lib/helpers.py": {11: {"wait": 10}}}
    plain = [SampledCode.of("k", code.digest, lines, 40, plain=True, file=file) for file, lines in files.items()]
    found = sampled_stalls(with_samples(traced(code), *plain))
    assert [(one.region, one.basis, one.samples, one.share) for one in found.regions] == [
        ("load", PLAIN_BY_LINE, 6, 6 / 40)
    ]
    assert found.notes == ("k: no source lines of their own, so not attributed: math",)
    both = sampled_stalls(with_samples(traced(code), *plain, marked(code, {0: {"wait": 5}})))
    assert {one.basis for one in both.regions} == {BY_ADDRESS}
    assert sum(one.samples for one in both.regions) <= 5
    assert both.notes == ("40 samples of launches without marks are not in this table",)


def test_losses_and_problems_are_said() -> None:
    code = code_of(UNROLLED)
    trace = with_samples(
        traced(code), marked(code, {0: {"wait": 60}}), taken=100, dropped=30, overflows=2, problems=("not sampled: x",)
    )
    said = ("not sampled: x", "the GPU dropped 30.0 % of the samples")
    full = "the GPU's buffer for samples was full 2 times, and samples were lost"
    assert sampled_stalls(trace).notes == (*said, full)
    assert sampling_line(trace) == "; ".join(
        ["60 samples of recorded kernels, one per SM every 1,024 cycles", *said, full]
    )
    few = with_samples(traced(code), marked(code, {0: {"wait": 999}}), taken=1000, dropped=1)
    assert sampled_stalls(few).notes == ()
    none = with_samples(traced(code), taken=0, problems=("not sampled: no permission",))
    assert sampling_line(none) == "not sampled: no permission"


def test_a_kernel_whose_regions_are_not_verified_is_named() -> None:
    code = code_of(UNROLLED)
    trace = with_samples(traced(code), marked(code, {0: {"wait": 1}}))
    trace.meta = replace(trace.meta, verification={})
    found = sampled_stalls(trace)
    assert (found.regions, found.notes) == ((), ("k: the trace has no verified kernel of this name",))


def test_a_kernel_whose_verification_failed_or_that_was_too_short_is_named() -> None:
    code = code_of(UNROLLED)
    trace = with_samples(traced(code), marked(code, {0: {"wait": 1}}))
    failed = KernelVerification("k", problem="nvdisasm was not found")
    trace.meta = replace(trace.meta, verification={code.digest: failed.to_json()})
    assert sampled_stalls(trace).notes == ("k: nvdisasm was not found",)
    short = with_samples(traced(code), taken=5, other=5)
    assert sampled_stalls(short).notes == ("k: no sample was taken of it; record more launches",)


def test_samples_outlive_file_selection_and_merge(tmp_path: Path) -> None:
    code = code_of(UNROLLED)
    trace = with_samples(traced(code), marked(code, samples_of(code)))
    expected = sampled_stalls(trace).regions
    trace.save(tmp_path / "t.warplens")
    loaded = wl.load(tmp_path / "t.warplens")
    assert sampled_stalls(loaded).regions == expected
    assert sampled_stalls(loaded.select(region="load")).regions == expected
    both = merge([loaded, wl.load(tmp_path / "t.warplens")])
    assert [one.samples for one in sampled_stalls(both).regions] == [2 * one.samples for one in expected]
    assert [one.share for one in sampled_stalls(both).regions] == pytest.approx([one.share for one in expected])


def test_findings_about_a_region_carry_its_stalls() -> None:
    code = code_of(UNROLLED)
    spans = (("load", 0, 90_000), ("math", 90_000, 10_000))
    plain = findings(traced(code, spans))
    found = findings(with_samples(traced(code, spans), marked(code, samples_of(code))))
    about = [one for one in (*found, *found.undecided, *found.refuted) if one.region == "load"]
    assert about
    for one in about:
        assert evidence_text(one).startswith("stalled by long_scoreboard; stall share 90.0 %; ")
        assert (one.evidence["stalled_by"], one.evidence["stall_share"]) == ("long_scoreboard", 0.9)
        assert one.evidence["stall_source"] == f"{PC_SAMPLING}, {BY_ADDRESS}"
    assert all("stalled_by" not in one.evidence for one in (*plain, *plain.undecided, *plain.refuted))


def test_too_many_rows_leave_the_totals_as_they_are() -> None:
    counts = {16 * at: {"wait": 1 + (at < 10)} for at in range(MAX_ROWS + 5)}
    total = sum(each["wait"] for each in counts.values())
    kept = PcSampling((SampledCode.of("k", "c", counts, total),)).bounded()
    assert len(kept.codes[0].rows) <= MAX_ROWS
    assert set(kept.codes[0].counts()) == {16 * at for at in range(10)}
    assert kept.codes[0].total == total
