"""Which code runs between two regions, found in the PTX that is woven."""

from __future__ import annotations

import pytest

from tests.support.ptx_kernels import HEAD
from warplens.auto.rules import Auto
from warplens.launch.weaving_options import weaving
from warplens.options import Options
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving
from warplens.weave.woven_ptx import Woven

FILES = '\t.file 1 "/home/me/attn.py"\n\t.file 2 "/lib/triton/language/standard.py"\n'


def woven(body: str, **options: object) -> Woven:
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 n)
.reqntid 32, 1, 1
{{
	.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<4>;
{body}
}}
{FILES}"""
    return weave(text, buffer=SymbolBuffer(), how=Weaving(between=True, **options))  # type: ignore[arg-type]


def found(kernel: Woven) -> dict[tuple[str, str], str]:
    """By the regions before and after it, the name of the code between them."""
    names = {0: "", **kernel.regions}
    return {(names[a], names[b]): names[own] for a, b, own in kernel.between.get("k", [])}


LOOP = """
	.loc 1 10 1
	ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; mov.u32 %r2, 0;
$loop:
	.loc 1 20 1
	add.u32 %r2, %r2, 1;
	// @warplens B load
	.loc 1 21 1
	ld.global.u32 %r3, [%rd1];
	// @warplens E load
	.loc 1 22 1
	add.u32 %r4, %r4, %r3;
	.loc 1 25 1
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra $loop;
	.loc 1 30 1
	mul.lo.u32 %r4, %r4, 3;
	.loc 2 99 1, function_name $L__info_string0, inlined_at 1 31 5
	add.u32 %r4, %r4, 1;
	// @warplens B store
	.loc 1 33 1
	st.global.u32 [%rd1], %r4;
	// @warplens E store
	bra $end;
$end:
	ret;
"""


def test_every_pair_of_neighbours_has_the_lines_of_the_code_between_them() -> None:
    kernel = woven(LOOP)
    assert found(kernel) == {
        ("", "load"): "work attn.py:10-20",
        ("load", "load"): "work attn.py:20-25",
        ("load", "store"): "work attn.py:22-31",
    }
    places = {kernel.regions[number]: place for number, place in kernel.locations.items()}
    assert places["work attn.py:22-31"] == "/home/me/attn.py:22"
    assert Woven.restore(kernel.text, kernel.describe()).between == kernel.between


def test_its_code_is_counted_like_that_of_other_regions() -> None:
    kernel = woven(LOOP, omit=("load",))
    code = {kernel.regions.get(int(number or 0), ""): counts for number, counts in kernel.code["k"].items()}
    counts = {"instructions": 9, "loads": 1, "load_bytes": 4, "load_waste": 1.0, "moved_bytes": 4.0}
    counts |= {"wasted_bytes": 28, "fetch_bytes": 32}
    assert code["work attn.py:10-31"] == counts | {"repeats": 1, "loops": 1, "unbounded": 1, "lengths_known": 1}
    assert code["store"]["stores"] == 1
    assert code[""] == {"instructions": 3, "unbounded": 1, "lengths_known": 1}, (
        "two jumps, one of a loop, and the return"
    )


def test_a_region_that_is_left_out_becomes_part_of_the_code_between_the_others() -> None:
    assert found(woven(LOOP, omit=("load",))) == {
        ("", "store"): "work attn.py:10-31",
    }


def test_fixed_slots_know_it_too() -> None:
    assert ("load", "store") in found(woven(LOOP.replace("@%p1 bra $loop;", ""), fixed=True))


def test_only_code_on_a_path_between_two_regions_counts() -> None:
    body = """
	.loc 1 1 1
	mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;
	@%p1 bra $other;
	.loc 1 10 1
	add.u32 %r1, %r1, 1;
	// @warplens B a
	add.u32 %r1, %r1, 1;
	// @warplens E a
	bra $end;
$other:
	.loc 1 20 1
	add.u32 %r1, %r1, 2;
	// @warplens B b
	add.u32 %r1, %r1, 1;
	// @warplens E b
$end:
	.loc 1 30 1
	add.u32 %r1, %r1, 3;
	ret;
"""
    assert found(woven(body)) == {
        ("", "a"): "work attn.py:1-10",
        ("", "b"): "work attn.py:1-20",
        ("a", ""): "work attn.py:30",
        ("b", ""): "work attn.py:30",
    }


def test_neighbours_without_code_between_them_and_code_inside_a_region_have_none() -> None:
    body = """
	.loc 1 1 1
	// @warplens B outer
	mov.u32 %r1, %tid.x;
	// @warplens B inner
	add.u32 %r1, %r1, 1;
	// @warplens E inner
	add.u32 %r1, %r1, 1;
	// @warplens E outer
	// @warplens B next
	add.u32 %r1, %r1, 1;
	// @warplens E next
	ret;
"""
    assert woven(body).between == {}


def test_code_without_lines_has_a_name_too() -> None:
    assert found(woven(LOOP.replace(".loc", "// .loc")))["load", "store"] == "work"


def test_nothing_is_claimed_where_the_open_regions_depend_on_the_path() -> None:
    body = """
	mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;
	@%p1 bra $skip;
	// @warplens B a
	add.u32 %r1, %r1, 1;
$skip:
	add.u32 %r1, %r1, 1;
	// @warplens E a
	ret;
"""
    assert woven(body).between == {}


def test_a_kernel_in_which_any_of_many_regions_can_follow_any_other_gets_none() -> None:
    def switch(cases: int) -> str:
        parts = [
            f"setp.eq.u32 %p1, %r1, {case};\n\t@!%p1 bra $case{case};\n\t// @warplens B r{case}\n"
            f"\tadd.u32 %r1, %r1, 1;\n\t// @warplens E r{case}\n\tadd.u32 %r2, %r2, 1;\n\tbra $loop;\n$case{case}:"
            for case in range(cases)
        ]
        return "$loop:\n\t" + "\n\t".join(parts) + "\n\tret;\n"

    assert len(woven(switch(8)).between["k"]) > 64
    assert woven(switch(40)).between == {}


@pytest.mark.parametrize(
    ("auto", "asked"), [(None, False), (True, True), ("work,loads", True), ("loads", False), ("all", False)]
)
def test_a_profile_asks_for_it_with_the_class_work(auto: str | bool | None, asked: bool) -> None:
    assert weaving(Options(auto=auto)).between == asked
    assert Auto.of(auto).covers_gaps == asked
