"""Nsight Compute's source page, attributed to regions: by address, by line, never mixed."""

from __future__ import annotations

import pytest

from tests.support.ncu_pages import Numbers, correlated_page, line_page, sass_page
from tests.support.sass_kernels import HOISTED, TENSOR, UNROLLED, code_of, needs_tools, with_lines
from tests.support.verified_trace import traced
from warplens.analyse.ncu_source import parse_source_pages
from warplens.analyse.region_counters import BY_ADDRESS, BY_LINE, OTHER_CODE, PLAIN_BY_LINE, region_counters
from warplens.errors import WarplensError
from warplens.sass.disassembly import SassFunction, SassInstruction, disassemble
from warplens.sass.machine_code import MachineCode, verify_code

pytestmark = needs_tools


def function_of(code: MachineCode) -> SassFunction:
    return disassemble(code.cubin or b"")["k"]


def plain_numbers(one: SassInstruction) -> Numbers:
    """Each instruction ran twice; loads wait for memory, everything else for the instruction before."""
    stall = {"long_sb": 10} if one.kind == "load.global" else {"wait": 2, "selected": 1}
    memory = {"bits": 32, "sectors": 40, "ideal": 8} if one.kind in ("load.global", "store.global") else {}
    return {"executed": 2, **stall, **memory}


def test_a_page_of_the_recorded_code_is_summed_by_address() -> None:
    code = code_of(UNROLLED)
    trace = traced(code)
    found = region_counters(trace, parse_source_pages(sass_page(function_of(code), plain_numbers)))
    assert found.notes == ()
    rows = {one.region: one for one in found.regions}
    load, math = rows["load"], rows["math"]
    assert load.basis == math.basis == BY_ADDRESS
    verified = verify_code(code)
    loads = verified["load"].counts["load.global"]
    inside = verified["load"].inside + verified["load"].own
    assert load.executed == 2 * inside
    assert load.stalls["long_scoreboard"] == 10 * loads
    assert (load.sectors, load.sectors_ideal, load.bytes) == (40 * loads, 8 * loads, 2 * 32 * 4 * loads)
    assert math.flops == verified["math"].counts["fp32"] * 2 * 32 * 2
    total = sum(row.samples for row in parse_source_pages(sass_page(function_of(code), plain_numbers))[0].rows)
    assert load.share == pytest.approx(load.samples / total)
    assert load.evidence["stalled_by"] == "long_scoreboard"
    assert load.evidence["ncu_sectors_excess"] == 5.0
    assert "selected" not in math.stall_shares
    assert load.sentence.endswith("stalled by long_scoreboard")


def test_tensor_instructions_count_their_flops() -> None:
    code = code_of(TENSOR)
    found = region_counters(traced(code), parse_source_pages(sass_page(function_of(code), plain_numbers)))
    assert found.regions[0].flops == 2 * 16 * 8 * 8 * 2


def test_several_launches_are_added_and_other_code_is_left_out_with_a_note() -> None:
    code, other = code_of(UNROLLED), code_of(HOISTED)
    page = sass_page(function_of(code), plain_numbers)
    once = region_counters(traced(code), parse_source_pages(page)).regions
    foreign = sass_page(function_of(other), plain_numbers)
    found = region_counters(traced(code), parse_source_pages(page + page + foreign))
    assert [one.executed for one in found.regions] == [2 * one.executed for one in once]
    assert [one.share for one in found.regions] == pytest.approx([one.share for one in once])
    assert found.notes == ("k: 1 of 3 launches ran other machine code and were left out",)


def test_the_page_of_the_plain_kernel_is_not_attributed_by_address() -> None:
    code, other = code_of(UNROLLED), code_of(HOISTED)
    found = region_counters(traced(code), parse_source_pages(sass_page(function_of(other), plain_numbers)))
    assert found.regions == ()
    assert found.notes == (f"k: {OTHER_CODE}",)


def test_a_kernel_that_the_trace_does_not_have_is_named() -> None:
    code = code_of(UNROLLED)
    page = sass_page(function_of(code), plain_numbers, "other(int)")
    found = region_counters(traced(code), parse_source_pages(page))
    assert found.regions == ()
    assert found.notes == ("other(int): the trace has no verified kernel of this name",)


def test_a_page_by_line_is_summed_over_the_lines_that_a_region_owns() -> None:
    code = with_lines()
    lines = line_page("/elsewhere/loop.py", {10: {"wait": 100}, 11: {"long_sb": 6}, 13: {"wait": 4}}, "k(int)")
    found = region_counters(traced(code), parse_source_pages(lines))
    assert [(one.region, one.basis, one.samples) for one in found.regions] == [("load", BY_LINE, 6)]
    assert found.regions[0].share == pytest.approx(6 / 110)
    assert found.notes == ("k: no source lines of their own, so not attributed: math",)


def test_a_page_of_lines_with_their_instructions_is_summed_by_line() -> None:
    code = with_lines()
    lines = {10: [{"wait": 100}], 11: [{"long_sb": 6, "executed": 3}, {"wait": 2, "executed": 3}], 13: [{"wait": 4}]}
    pages = parse_source_pages(correlated_page("loop.py", lines, "k(int)"))
    assert [(page.sass, len(page.rows)) for page in pages] == [(False, 4)]
    (load,) = region_counters(traced(code), pages).regions
    assert (load.basis, load.samples, load.executed) == (BY_LINE, 8, 6)
    assert load.stalls == {"long_scoreboard": 6, "wait": 2}


def test_a_source_without_counters_is_no_page() -> None:
    """What ncu prints for the source alone."""
    text = '"File Name","/home/me/loop.py"\n"Line No","Source"\n"1","import triton"\n"2",""\n'
    with pytest.raises(WarplensError, match="no source page"):
        parse_source_pages(text)


def test_a_report_without_marks_is_attributed_by_line_and_says_so() -> None:
    code = with_lines()
    plain = sass_page(function_of(code_of(HOISTED)), plain_numbers)
    lines = line_page("loop.py", {11: {"long_sb": 6}}, "k")
    found = region_counters(traced(code), [*parse_source_pages(plain), *parse_source_pages(lines)])
    assert [one.basis for one in found.regions] == [PLAIN_BY_LINE]
    # With a page of the recorded code, lines are not asked: two bases are never added up.
    marked = sass_page(function_of(code), plain_numbers)
    both = region_counters(traced(code), [*parse_source_pages(marked), *parse_source_pages(lines)])
    assert {one.basis for one in both.regions} == {BY_ADDRESS}


def test_what_is_no_source_page_is_refused() -> None:
    for text in ("", '"ID","Kernel Name"\n"0","k"\n', '"Kernel Name","k"\n"Address","Source"\n'):
        with pytest.raises(WarplensError, match="no source page"):
            parse_source_pages(text)


def test_a_truncated_page_keeps_its_whole_rows() -> None:
    code = code_of(UNROLLED)
    text = sass_page(function_of(code), plain_numbers)
    whole = parse_source_pages(text)[0]
    cut = parse_source_pages(text[: len(text) // 2])[0]
    assert cut.rows[:-1] == whole.rows[: len(cut.rows) - 1]
