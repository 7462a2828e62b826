"""Findings about a region say what the machine code holds against its time."""

from __future__ import annotations

from dataclasses import replace

import warplens as wl
from tests.support.paths import GOLDEN
from warplens.analyse.finding import Finding
from warplens.analyse.findings import findings
from warplens.record.capture import MACHINE_CODE
from warplens.sass.verified_regions import KernelVerification, RegionCode

FLAG = "all of its 6 asynchronous copies are outside its marks"


def all_findings(trace: wl.Trace) -> list[Finding]:
    found = findings(trace)
    tops = [*found.supported, *found.undecided, *found.withheld, *found.refuted]
    return [*tops, *(below for one in tops for below in one.consequences)]


def test_a_region_whose_work_was_moved_out_is_flagged_in_every_finding_about_it() -> None:
    trace = wl.load(GOLDEN / "findings" / "stalled.warplens")
    before = all_findings(trace)
    region = next(one.region for one in before if one.region)
    code = KernelVerification(trace.kernels[0], (RegionCode(region, 1, 1, 9, 2, flag=FLAG),))
    launches = tuple(replace(info, extra={**info.extra, MACHINE_CODE: "x"}) for info in trace.meta.launches)
    trace.meta = replace(trace.meta, launches=launches, verification={"x": code.to_json()})
    after = all_findings(trace)
    assert [(one.kind, one.what, one.verdict) for one in after] == [(one.kind, one.what, one.verdict) for one in before]
    about = [one for one in after if one.region == region]
    assert about
    for one in about:
        assert one.caution == f"`{region}` did not time what it marks: {FLAG}."
        assert (one.evidence["purity"], one.evidence["complete"]) == (0.5, 0.1)
        assert one.to_json()["caution"] == one.caution
    assert not any(one.caution or "purity" in one.evidence for one in after if one.region != region)
