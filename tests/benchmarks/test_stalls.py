"""The proof on a GPU, as far as it goes without one: how it compares samples with warp time and with ncu."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import stalls
from tests.support.sass_kernels import UNROLLED, code_of, needs_tools
from tests.support.verified_trace import traced, verified
from warplens.analyse.region_counters import AttributedPages
from warplens.analyse.sampled_stalls import sampled_stalls
from warplens.sass.pc_samples import PcSampling, SampledCode

pytestmark = needs_tools


def test_the_proof_on_a_gpu_compares_shares_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(UNROLLED)
    known = verified(code)
    places = {known[name].ranges[0][0]: counts for name, counts in (("load", {"wait": 8}), ("math", {"barrier": 2}))}
    trace = traced(code, (("load", 0, 60), ("math", 60, 40)))
    trace.meta = replace(trace.meta, pc_samples=PcSampling((SampledCode.of("k", code.digest, places, 10),)).to_json())
    monkeypatch.setitem(stalls.EXPECTED, "k", {"load": ("wait",), "math": ("wait",)})
    found = stalls.compared(trace)
    assert found["as_expected"] == "1 of 2"
    assert found["regions"]["load"]["share"] == 0.8
    assert found["largest_difference"] == pytest.approx(abs(0.8 - found["regions"]["load"]["time_share"]), abs=1e-3)
    ours = sampled_stalls(trace)
    theirs = AttributedPages([replace(one, share=0.5, stalls={"wait": one.samples}) for one in ours.regions])
    both = stalls.beside(ours, theirs)
    assert both["k: math"]["top"] == ["barrier", "wait"]
    assert both["k: math"]["largest_difference"] == 1.0
    assert both["k: load"] == {"share": [0.8, 0.5], "top": ["wait"] * 2, "samples": [8, 8], "largest_difference": 0.0}
