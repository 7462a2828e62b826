"""The proof on a GPU, as far as it goes without one: how it compares a verification with ncu's page."""

from __future__ import annotations

from benchmarks.verify_on_gpu import compare
from tests.support.ncu_pages import sass_page
from tests.support.sass_kernels import HOISTED, TENSOR, code_of, needs_tools
from tests.support.verified_trace import traced
from warplens.analyse.ncu_source import SourcePage, parse_source_pages
from warplens.sass.disassembly import disassemble
from warplens.sass.machine_code import MachineCode

pytestmark = needs_tools


def page_of(code: MachineCode) -> list[SourcePage]:
    """A page of code whose instructions all ran twice."""
    return parse_source_pages(sass_page(disassemble(code.cubin or b"")["k"], lambda one: {"executed": 2}))


def test_the_proof_on_a_gpu_compares_counts_and_begins() -> None:
    code = code_of(HOISTED)
    spans = [("load", 0, 4), ("math", 5, 4), ("load", 10, 4), ("math", 15, 4)]
    trace = traced(code, spans)
    agreeing = compare(trace, page_of(code))["k"]
    assert agreeing["agrees"]
    assert {one["region"]: one["spans"] for one in agreeing["regions"]} == {"load": 2, "math": 2}
    wrong = compare(traced(code, spans[:1]), page_of(code))["k"]
    assert not wrong["agrees"]
    assert not compare(trace, page_of(code_of(TENSOR)))["k"]["page"]
