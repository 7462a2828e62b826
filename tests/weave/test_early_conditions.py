"""Conditions of jumps are made before a mark that stands in front of the jump, and nothing else changes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ptx_kernels import kernel
from tests.support.woven_launch import launch
from warplens import simulate
from warplens.ptx.tree import parse
from warplens.weave.early_conditions import make_early
from warplens.weave.mark_sites import outline
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving

STEP, TEST, JUMP = "add.u32 %r4, %r4, 1;", "setp.lt.u32 %p1, %r4, %r1;", "@%p1 bra $x;"
MARK = "// @warplens I a"
CASES = {
    "a loop's end": ([MARK, STEP, TEST, JUMP], [STEP, TEST, MARK, JUMP]),
    "of two marks": ([MARK, "// @warplens I b", TEST, JUMP], [TEST, MARK, "// @warplens I b", JUMP]),
    "with other work": ([MARK, "fma.rn.f32 %r8, %r8, %r8, %r8;", TEST, JUMP],
                        [TEST, MARK, "fma.rn.f32 %r8, %r8, %r8, %r8;", JUMP]),
    "made in two steps": ([MARK, "and.b32 %r5, %r4, 3;", "setp.eq.u32 %p1, %r5, 0;", "@!%p1 bra $x;"],
                          ["and.b32 %r5, %r4, 3;", "setp.eq.u32 %p1, %r5, 0;", MARK, "@!%p1 bra $x;"]),
    "behind a copy": (["mov.u32 %r4, %r5;", MARK, TEST, JUMP], ["mov.u32 %r4, %r5;", TEST, MARK, JUMP]),
    "a counter that is still read": ([MARK, "st.global.u32 [%rd1], %r4;", STEP, TEST, JUMP], None),
    "a counter that the mark tells": (["// @warplens V a u32 %r4", STEP, TEST, JUMP], None),
    "a value from memory": ([MARK, "ld.global.u32 %r4, [%rd1];", TEST, JUMP], None),
    "a value made of other work": ([MARK, "popc.b32 %r4, %r5;", TEST, JUMP], None),
    "a value in a register without a %": ([MARK, "popc.b32 n, %r5;", "setp.lt.u32 %p1, n, %r1;", JUMP], None),
    "a register that is declared behind it": (
        [MARK, ".reg .pred q;", "setp.eq.u32 q, %r4, 1;", "@q bra $x;"], None),
    "a condition on the clock": ([MARK, "mov.u32 %r4, %clock;", TEST, JUMP], None),
    "a floating-point condition": ([MARK, "setp.lt.f32 %p1, %r4, %r5;", JUMP], None),
    "a place that is jumped to": ([MARK, "$y:", TEST, JUMP], None),
    "a mark in between": ([MARK, "add.u32 %r9, %r9, 1;", "// @warplens I b", "add.u32 %r9, %r9, 1;", JUMP], None),
    "no condition": ([MARK, "add.u32 %r9, %r9, 1;", "bra $x;"], None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_a_jump_depends_on_moves_in_front_of_the_mark(case: str) -> None:
    lines, expected = CASES[case]
    module = parse(kernel("\n".join(["$x:", *lines, "@%p2 bra $y;", *(["$y:"] if "$y:" not in lines else [])])))
    function = module.entries[0]
    for block in outline(function, {}).blocks:
        make_early([block.sites])
    text = module.text()
    found = [line.strip() for line in text[text.index("$x:") : text.index("// last")].splitlines()[1:]]
    assert found[: len(lines)] == (expected or lines)


OPCODES = st.sampled_from(["add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "min.u32"])
WORK = st.one_of(
    st.tuples(OPCODES, *[st.integers(4, 9)] * 3).map(lambda i: f"{i[0]} %r{i[1]}, %r{i[2]}, %r{i[3]};"),
    st.tuples(st.integers(4, 9), st.integers(4, 9)).map(lambda i: f"mov.u32 %r{i[0]}, %r{i[1]};"),
    st.tuples(st.integers(4, 9), st.integers(0, 7)).map(lambda i: f"red.global.add.u32 [%rd1+{4 * i[1]}], %r{i[0]};"),
)


@settings(max_examples=100)
@given(before=st.lists(WORK, max_size=3), work=st.lists(WORK, min_size=1, max_size=8), tested=st.integers(4, 9))
def test_a_kernel_computes_what_it_computes_without_marks(before: list[str], work: list[str], tested: int) -> None:
    lines = [
        "mov.u32 %r4, 1; mov.u32 %r5, 7; mov.u32 %r6, 9; mov.u32 %r7, 4; mov.u32 %r8, %r3; mov.u32 %r9, 2;",
        "mov.u32 %r10, 0;", "$x:", *before, "// @warplens I work", *work, f"setp.lt.u32 %p1, %r{tested}, 9;",
        "@%p1 bra $y;", "red.global.add.u32 [%rd1+28], 1;", "$y:",
        "// @warplens I end", "add.u32 %r10, %r10, 1;", "setp.lt.u32 %p2, %r10, 3;", "@%p2 bra $x;",
    ]  # fmt: skip
    text = kernel("\n".join(lines))
    memory = simulate.GlobalMemory()
    out = memory.alloc(32)
    simulate.run(re.sub(r"(?m)^// @warplens.*$", "", text), "k", 2, 64, [out, 3], memory=memory)
    woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store="spread"))
    assert woven.stores["k"] == "spread"
    _, result, _ = launch(woven, "k", 2, 64, ["OUT", 3], out=8)
    assert result.tolist() == memory.read(out, np.int32, 8).tolist(), woven.text
