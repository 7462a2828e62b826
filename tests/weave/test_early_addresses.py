"""Addresses are computed before the wait in front of a mark, and nothing else changes its place."""

from __future__ import annotations

import re

import pytest

from tests.support.ptx_kernels import kernel
from warplens.ptx.tree import parse
from warplens.weave.early_addresses import move_addresses_up
from warplens.weave.track_ptx import AWAITED
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving

WAIT, MARK = "wgmma.wait_group.sync.aligned 1;", "// @warplens E dot"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11}, %rd2, %rd3, %p2, 1, 1, 0, 0;"
STEP, COPY = "add.s64 %rd1, %rd1, 64;", "cp.async.cg.shared.global [%r4], [%rd1], 16;"
CASES = {
    "an address behind a mark": ([WAIT, MARK, STEP, COPY], [STEP, WAIT, MARK, COPY]),
    "an address in two steps": (
        [WAIT, MARK, "shl.b32 %r5, %r4, 3;", "add.s32 %r6, %r5, %r1;", COPY],
        ["shl.b32 %r5, %r4, 3;", "add.s32 %r6, %r5, %r1;", WAIT, MARK, COPY]),
    "what an address is made of in front of the mark": (
        [WAIT, "shl.b32 %r5, %r4, 3;", MARK, "add.s32 %r6, %r5, %r1;", COPY],
        ["shl.b32 %r5, %r4, 3;", "add.s32 %r6, %r5, %r1;", WAIT, MARK, COPY]),
    "a wait for copies": (
        ["cp.async.wait_group 2;", MARK, STEP, COPY], [STEP, "cp.async.wait_group 2;", MARK, COPY]),
    "the last of two waits": (
        ["cp.async.wait_group 2;", "bar.sync 0;", MARK, STEP, COPY],
        ["cp.async.wait_group 2;", STEP, "bar.sync 0;", MARK, COPY]),
    "past a fence of the products": (
        [WAIT, MARK, "wgmma.fence.sync.aligned;", STEP, PRODUCT],
        [STEP, WAIT, MARK, "wgmma.fence.sync.aligned;", PRODUCT]),
    "no mark in between": ([WAIT, STEP, COPY], None),
    "no wait": ([COPY, MARK, STEP, COPY], None),
    "behind a product": ([WAIT, MARK, PRODUCT, STEP], None),
    "a result of the products": ([WAIT, MARK, "mov.b32 %r5, %r10;", COPY], None),
    "a register that a product still reads": ([WAIT, MARK, "mov.b32 %r10, 0;", COPY], None),
    "a value from memory": ([WAIT, MARK, "ld.global.u32 %r5, [%rd1];", "add.s32 %r6, %r5, 1;"], None),
    "a value from memory before the wait": (
        ["ld.global.u32 %r5, [%rd1];", WAIT, MARK, "add.s32 %r6, %r5, 1;"], None),
    "an address that is still read": ([WAIT, COPY, MARK, STEP, COPY], None),
    "an address that the mark tells": ([WAIT, "// @warplens V at u64 %rd1", STEP, COPY], None),
    "a result of the wait": (["bar.red.popc.u32 %r5, 0, %p1;", MARK, "add.s32 %r6, %r5, 1;"], None),
    "a register that the wait reads": (["bar.sync %r5, 64;", MARK, "add.s32 %r5, %r5, 1;"], None),
    "a result of a wait in braces": (["{ cp.async.wait_all; mov.u32 %r5, %r4; }", MARK, "add.s32 %r6, %r5, 1;"], None),
    "a wait for a value": ([WAIT, MARK, f"mad.lo.u32 {AWAITED}, %r5, %r4, {AWAITED};", COPY], None),
    "floating-point work": ([WAIT, MARK, "fma.rn.f32 %r5, %r6, %r7, %r8;", COPY], None),
    "work on a condition": ([WAIT, MARK, "@%p1 add.s64 %rd1, %rd1, 64;", COPY], None),
    "the clock": ([WAIT, MARK, "mov.u32 %r5, %clock;", COPY], None),
    "a place that is jumped to": ([WAIT, MARK, "$y:", STEP, COPY], None),
}  # fmt: skip


def moved(lines: list[str], *, products: bool = True) -> list[str]:
    body = ["$x:", *lines, "// done", *([PRODUCT] if products else []), "@%p2 bra $x;"]
    module = parse(kernel("\n".join(body)))
    move_addresses_up(module.entries[0])
    text = module.text()
    return [line.strip() for line in text[text.index("$x:") : text.index("// done")].splitlines()[1:]]


@pytest.mark.parametrize("case", CASES)
def test_arithmetic_moves_in_front_of_the_wait(case: str) -> None:
    lines, expected = CASES[case]
    assert moved(lines) == (expected or lines)


def test_kernels_without_asynchronous_products_stay_as_they_are() -> None:
    lines = ["bar.sync 0;", MARK, STEP, COPY]
    assert moved(lines, products=False) == lines


@pytest.mark.parametrize("mode", ["trace", "aggregate"])
def test_addresses_move_in_both_modes(mode: str) -> None:
    text = kernel("\n".join(["$x:", "// @warplens B dot", WAIT, MARK, STEP, COPY, PRODUCT, "@%p2 bra $x;"]))
    for early in (True, False):
        woven = weave(text, buffer=SymbolBuffer(), how=Weaving(mode=mode, early=early)).text
        assert (woven.index(STEP) < woven.index(WAIT)) is early


def test_code_that_moves_keeps_its_line() -> None:
    lines = [".loc 1 5 1", WAIT, MARK, ".loc 1 7 1", STEP, COPY]
    assert moved(lines) == [
        ".loc 1 5 1", ".loc 1 7 1", STEP, ".loc 1 5 1", WAIT, MARK, ".loc 1 7 1", COPY,
    ]  # fmt: skip


def test_a_kernel_is_woven_so_unless_the_weaving_says_otherwise() -> None:
    text = kernel("\n".join(["// @warplens B dot", PRODUCT, WAIT, MARK, STEP, COPY]))
    for early in (True, False):
        woven = weave(text, buffer=SymbolBuffer(), how=Weaving(early=early)).text
        assert (woven.index(STEP) < woven.index(WAIT)) == early


@pytest.mark.parametrize(
    ("behind", "needed"),
    [
        (["cp.async.cg.shared.global [%r4], [%rd1], 16;", MARK], False),
        (["add.s32 %r5, %r5, 1;", "ld.shared.u32 %r5, [%r4];", MARK], False),
        ([MARK, "ld.shared.u32 %r5, [%r4];"], True),
        (["@%p1 ld.shared.u32 %r5, [%r4];", MARK], True),
        (["ld.param.u32 %r5, [n];", MARK], True),
        (["cp.async.commit_group;", MARK], True),
        (["add.s32 %r5, %r5, 1;", MARK], True),
        (["@%p1 bra $y;", "$y:", "ld.shared.u32 %r5, [%r4];", MARK], True),
    ],
)
def test_a_block_barrier_needs_a_warp_barrier_unless_memory_is_accessed_before_the_next_mark(
    behind: list[str], needed: bool
) -> None:
    text = kernel("\n".join(["// @warplens B dot", "add.s32 %r6, %r6, 1;", "bar.sync 0;", *behind]))
    woven = weave(text, buffer=SymbolBuffer()).text
    assert bool(re.search(r"bar\.sync\s+0;\s+bar\.warp\.sync", woven)) == needed


def test_a_line_of_inlined_code_stays_behind_that_of_its_caller() -> None:
    """ptxas refuses a `.loc` whose caller no `.loc` before it names."""
    callee = ".loc 1 9 1, function_name $L__info_string0, inlined_at 1 7 3"
    behind = [WAIT, MARK, callee, STEP, COPY]
    assert moved([".loc 1 5 1", *behind]) == [".loc 1 5 1", STEP, WAIT, MARK, callee, COPY]
    known = [".loc 1 7 3", ".loc 1 5 1"]
    assert moved([*known, *behind]) == [*known, callee, STEP, ".loc 1 5 1", WAIT, MARK, callee, COPY]
