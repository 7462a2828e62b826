"""A woven kernel's registers: near those of the plain kernel wherever ptxas can do it without a spill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens import simulate
from warplens.ptx.tree import parse
from warplens.weave.fit.candidates import Candidate
from warplens.weave.fit.recompute import recompute
from warplens.weave.fit.register_limit import EXTRA_REGISTERS, MIN_LIMIT, limit, limitable, limited
from warplens.weave.fit.resources import Resources
from warplens.weave.fit.search import Attempt, tighten
from warplens.weave.weaving import Weaving

GOLDEN = Path(__file__).parents[1] / "golden" / "ptx"
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = ".visible .entry {name}(.param .u64 p)\n{directives}{{\n\tret;\n}}\n"


def made(limit: int, registers: int, **rest: int) -> Attempt[int]:
    return Attempt(Candidate(Weaving(), limit), limit, Resources(registers, **rest))


def fit(
    free: Attempt[int], plain: int, make: Callable[[int], Attempt[int] | None], *, roomy: int = 0, bisect: bool = True
) -> Attempt[int]:
    target = max(plain + EXTRA_REGISTERS, MIN_LIMIT)
    return tighten(free, Resources(plain), make, target, roomy=roomy, bisect=bisect)


def pretend(needs: int, free: int) -> tuple[Attempt[int], Callable[[int], Attempt[int] | None], list[int]]:
    """A kernel that spills below `needs` registers and takes `free` where nothing limits it."""
    asked: list[int] = []

    def make(limit: int) -> Attempt[int]:
        asked.append(limit)
        return made(limit, min(limit, free), spills=4 * max(0, needs - limit))

    return made(0, free), make, asked


def test_a_kernel_that_takes_few_more_registers_is_left_alone() -> None:
    free, make, asked = pretend(needs=100, free=104)
    assert fit(free, 100, make) is free
    assert not asked, "a limit would only cost another run of ptxas"


def test_a_kernel_that_takes_many_more_is_limited() -> None:
    free, make, asked = pretend(needs=100, free=150)
    assert fit(free, 100, make).resources.registers == 100 + EXTRA_REGISTERS
    assert asked == [104]


def test_blocks_on_an_sm_come_before_the_registers_allowed() -> None:
    free, make, _ = pretend(needs=120, free=131)
    assert fit(free, 128, make, roomy=128).resources.registers == 128
    free, make, _ = pretend(needs=130, free=150)
    assert fit(free, 128, make, roomy=128).resources.registers == 132, "what cannot be kept is not paid for by a spill"


def test_lower_limits_are_searched_for_only_where_that_is_asked_for() -> None:
    free, make, asked = pretend(needs=120, free=150)
    assert fit(free, 100, make, bisect=False) is free
    assert asked == [104]
    assert fit(free, 100, make).resources.registers == 120


@given(plain=st.integers(8, 250), more=st.integers(0, 100), slack=st.integers(0, 100), roomy=st.integers(0, 255))
def test_nothing_spills_and_no_step_below_would_do(plain: int, more: int, slack: int, roomy: int) -> None:
    needs = min(plain + more, 255)
    free, make, asked = pretend(needs, min(needs + slack, 255))
    found = fit(free, plain, make, roomy=roomy).resources
    assert found.spills == 0
    assert found.registers <= free.resources.registers
    assert found.registers <= max(plain + EXTRA_REGISTERS, MIN_LIMIT, -(-(needs + 1) // 8) * 8 + 8)
    assert all(MIN_LIMIT <= limit < free.resources.registers for limit in asked)
    assert len(asked) <= 7


def test_limits_that_ptxas_warns_of_or_cannot_meet_are_not_kept() -> None:
    free = made(0, 150)
    assert fit(free, 100, lambda limit: made(limit, limit, warnings=1)) is free
    assert fit(free, 100, lambda limit: made(limit, limit, serialized=True)) is free
    assert fit(free, 100, lambda limit: None) is free


def test_a_kernel_that_spills_without_a_limit_gets_none() -> None:
    free = made(0, 255, spills=8)
    assert fit(free, 250, lambda limit: pytest.fail("no limit can help")) is free


def test_the_limit_goes_to_the_kernels_named() -> None:
    text = HEADER + KERNEL.format(name="one", directives=".reqntid 128\n") + KERNEL.format(name="two", directives="")
    assert limitable(text)
    made = parse(limited(text, {"one": 64}))
    assert [entry.performance for entry in made.entries] == [{"reqntid": (128,), "maxnreg": (64,)}, {}]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.ptx")), ids=lambda path: path.stem)
def test_limits_go_where_the_parsed_module_has_them(path: Path) -> None:
    text = path.read_text()
    module = parse(text)
    limits = {entry.name: 40 + number for number, entry in enumerate(module.entries)}
    for entry in module.entries:
        limit(entry, limits[entry.name])
    assert limited(text, limits) == module.text()
    assert limited(text, {"no_such_kernel": 40}) == text


@pytest.mark.parametrize("text", [".maxnreg 80", "setmaxnreg.dec.sync.aligned.u32 40;"])
def test_kernels_whose_registers_are_spoken_for_are_not_limited(text: str) -> None:
    assert not limitable(text)


LOOP = (
    HEADER
    + """\
.visible .entry work(.param .u64 out, .param .u32 turns)
{
	.reg .pred %p<3>;
	.reg .b32 %r<12>;
	.reg .b64 %rd<4>;
$begin:
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [turns];
	mov.u32 %r2, %tid.x;
	mov.u32 %r9, 0;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra $none;
	shr.u32 %r3, %r2, 1;
	and.b32 %r4, %r3, 48;
	shl.b32 %r5, %r2, 8;
$loop:
	add.u32 %r9, %r9, 3;
	sub.u32 %r1, %r1, 1;
	setp.ne.u32 %p2, %r1, 0;
	@%p2 bra $loop;
	bra.uni $join;
$none:
	shr.u32 %r6, %r2, 1;
	and.b32 %r4, %r6, 48;
	shl.b32 %r5, %r2, 8;
$join:
	add.u32 %r7, %r4, %r9;
	add.u32 %r7, %r7, %r5;
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r7;
	ret;
}
"""
)
"""%r4 and %r5 are made on both ways to $join and live through the loop; %r9 changes in it."""


def test_values_that_only_wait_through_a_loop_are_made_behind_it() -> None:
    module = parse(LOOP)
    assert recompute(module.entries[0]) == 2
    text = module.text()
    join = text[text.index("$join:") : text.index("add.u32 %r7, %r4")]
    assert [line.strip() for line in join.splitlines()[1:] if line.strip()] == [
        "shr.u32 %r3, %r2, 1;", "and.b32 %r4, %r3, 48;", "shl.b32 %r5, %r2, 8;"
    ]  # fmt: skip
    for turns in (0, 5):
        results = []
        for one in (LOOP, text):
            memory = simulate.GlobalMemory()
            out = memory.alloc(4 * 64)
            simulate.run(one, "work", 1, 64, [out, turns], memory=memory)
            results.append(memory.read(out, np.int32, 64).tolist())
        assert results[0] == results[1]
        assert len(set(results[0])) == 64


@pytest.mark.parametrize(
    ("change", "left", "why"),
    [
        (("shr.u32 %r6, %r2, 1;", "shr.u32 %r6, %r2, 2;"), 1, "the ways do not agree"),
        (("$loop:\n", "$loop:\n\tadd.u32 %r9, %r9, %r4;\n"), 1, "the loop needs it anyway"),
        (("$none:\n\tshr.u32 %r6", "$none:\n\t@%p1 shr.u32 %r6"), 1, "it may not be made"),
        (("add.u32 %r9, %r9, 3;", "add.u32 %r9, %r9, 3;\n\tadd.u32 %r2, %r2, 1;"), 0, "what it is made of changes"),
        (("$loop:\n", "$loop:\n\t{\n\t.reg .b32 %r4;\n\tmov.u32 %r4, 1;\n\t}\n"), 0, "a name means two registers"),
        (("shl.b32 %r5, %r2, 8;\n$loop", "ld.global.u32 %r5, [%rd1];\n$loop"), 1, "memory may change"),
        (("$begin:\n", "$begin:\n\tbra.uni $on;\n$on:\n"), 0, "the first branch ends what is fixed"),
        (("$join:\n", "$join:\n$L__tmp1:\n"), 2, "a place may have two names"),
        (
            ("mov.u32 %r9, 0;\n", "shl.b32 %r5, %r2, 8;\n\tbar.sync 0;\n\tadd.u32 %r9, %r5, 1;\n"),
            2,
            "where the kernel begins, before its declarations, there is nothing to make it of",
        ),
    ],
)
def test_values_that_may_differ_or_are_needed_in_the_loop_are_kept(
    change: tuple[str, str], left: int, why: str
) -> None:
    text = LOOP.replace(*change)
    assert text != LOOP
    assert recompute(parse(text).entries[0]) == left, why


@pytest.mark.parametrize("version", ["triton", "triton39"])
def test_a_matmul_computes_the_same_with_values_made_again(version: str) -> None:
    text = (GOLDEN / f"{version}_matmul_sm80.ptx").read_text()
    module = parse(text)
    recompute(module.entries[0])
    a, b = (np.random.default_rng(0).normal(size=(32, 32)).astype(np.float16) for _ in range(2))
    results = []
    for one in (text, module.text()):
        memory = simulate.GlobalMemory()
        args = [memory.alloc(a), memory.alloc(b), memory.alloc(4 * 32 * 32)]
        simulate.run(one, "matmul", (1, 1), 128, [*args, 32, 32, 32, 0, 0], memory=memory, shared=8192)
        results.append(memory.read(args[2], np.uint32, 32 * 32))
    np.testing.assert_array_equal(*results)
    assert results[0].any()
