"""Automatic marks of loops without other marks, and of loops that poll memory."""

from __future__ import annotations

from warplens.auto.ptx.ptx_marker import mark_ptx
from warplens.auto.rules import Auto
from warplens.ptx.tree import parse

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a)
{
  .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
  ld.param.u64 %rd1, [a];
"""
TAIL = "  ret;\n}\n"
COUNT = "  add.u32 %r1, %r1, 1;\n  setp.lt.u32 %p1, %r1, 99;\n"


def sites(body: str, auto: str | bool = True) -> list[tuple[str, str]]:
    found = mark_ptx(HEAD + body + TAIL, Auto.of(auto)).sites.get("k", ())
    return [(site.region.split(" k+")[0], site.kind) for site in found]


def test_a_loop_without_marks_is_one_region() -> None:
    loop = f"$L:\n  fma.rn.f32 %f1, %f1, %f1, %f1;\n{COUNT}  @%p1 bra $L;\n"
    assert sites(loop) == [("whole loop", "loops")]
    assert sites(loop, "loads") == []


def test_a_loop_with_marks_is_not_and_the_one_inside_it_is() -> None:
    inner = (
        "$I:\n  fma.rn.f32 %f1, %f1, %f1, %f1;\n  add.u32 %r2, %r2, 1;\n  setp.lt.u32 %p2, %r2, 9;\n  @%p2 bra $I;\n"
    )
    outer = f"$L:\n  mov.u32 %r2, 0;\n{inner}  st.global.f32 [%rd1], %f1;\n{COUNT}  @%p1 bra $L;\n"
    assert sites(outer) == [("whole loop", "loops"), ("store", "stores")]


def test_a_loop_that_polls_a_flag_or_tries_a_lock_is_one_wait() -> None:
    flag = (
        "$L:\n  nanosleep.u32 20;\n  ld.volatile.global.u32 %r1, [%rd1];\n  setp.eq.u32 %p1, %r1, 0;\n  @%p1 bra $L;\n"
    )
    lock = "$L:\n  atom.global.cas.b32 %r1, [%rd1], 0, 1;\n  setp.ne.u32 %p1, %r1, 0;\n  @%p1 bra $L;\n"
    assert sites(flag) == sites(lock) == [("spin wait", "waits")]


def test_a_loop_that_loads_data_or_adds_atomically_is_no_wait() -> None:
    data = f"$L:\n  ld.global.u32 %r2, [%rd1];\n{COUNT}  @%p1 bra $L;\n"
    adds = f"$L:\n  atom.global.add.u32 %r2, [%rd1], 1;\n{COUNT}  @%p1 bra $L;\n"
    assert [kind for _, kind in sites(data)] == ["loads"]
    assert [kind for _, kind in sites(adds)] == ["stores"]


def test_a_polling_loop_is_one_wait_where_other_code_skips_it() -> None:
    """Its exit leads where other code leads, too, so that the end of the wait needs a block of its own."""
    body = (
        "  setp.eq.u32 %p2, %r2, 0;\n  @%p2 bra $D;\n$L:\n  ld.volatile.global.u32 %r1, [%rd1];\n"
        "  setp.ne.u32 %p1, %r1, 0;\n  @%p1 bra $D;\n  nanosleep.u32 20;\n  bra.uni $L;\n$D:\n"
    )
    assert sites(body) == [("spin wait", "waits")]


def test_code_whose_only_return_is_in_the_scope_of_a_call_is_marked() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.func f()\n{\n\tret;\n}\n"
        ".visible .entry k()\n{\n\t{\n\tcall.uni f, ();\n\tret;\n\t}\n\t{\n\tcall.uni f, ();\n\tret;\n\t}\n}\n"
    )
    marked = mark_ptx(text, Auto.of("all")).text
    parse(marked)
    assert [marked.count(f"// @warplens {kind} ") for kind in "BE"] == [1, 1]
