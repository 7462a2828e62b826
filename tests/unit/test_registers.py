"""A woven kernel's registers: near those of the plain kernel wherever ptxas can do it without a spill."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.weave.ptx import parse
from warplens.weave.registers import FEWEST, MORE, Made, fit, limitable, limited

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = ".visible .entry {name}(.param .u64 p)\n{directives}{{\n\tret;\n}}\n"


def pretend(needs: int, free: int) -> tuple[Made[int], Callable[[int], Made[int] | None], list[int]]:
    """A kernel that spills below `needs` registers and takes `free` where nothing limits it."""
    asked: list[int] = []

    def make(limit: int) -> Made[int]:
        asked.append(limit)
        return Made(limit, min(limit, free), spills=4 * max(0, needs - limit))

    return Made(0, free), make, asked


def test_a_kernel_that_takes_few_more_registers_is_left_alone() -> None:
    free, make, asked = pretend(needs=100, free=104)
    assert fit(free, Made(None, 100), make) is free
    assert not asked, "a limit would only cost another run of ptxas"


def test_a_kernel_that_takes_many_more_is_limited() -> None:
    free, make, asked = pretend(needs=100, free=150)
    assert fit(free, Made(None, 100), make).registers == 100 + MORE
    assert asked == [104]


def test_blocks_on_an_sm_come_before_the_registers_allowed() -> None:
    free, make, _ = pretend(needs=120, free=131)
    assert fit(free, Made(None, 128), make, roomy=128).registers == 128
    free, make, _ = pretend(needs=130, free=150)
    assert fit(free, Made(None, 128), make, roomy=128).registers == 132, (
        "what cannot be kept is not paid for by a spill"
    )


@given(plain=st.integers(8, 250), more=st.integers(0, 100), slack=st.integers(0, 100), roomy=st.integers(0, 255))
def test_nothing_spills_and_no_step_below_would_do(plain: int, more: int, slack: int, roomy: int) -> None:
    needs = min(plain + more, 255)
    free, make, asked = pretend(needs, min(needs + slack, 255))
    made = fit(free, Made(None, plain), make, roomy)
    assert made.spills == 0
    assert made.registers <= free.registers
    assert made.registers <= max(plain + MORE, FEWEST, -(-(needs + 1) // 8) * 8 + 8)
    assert all(FEWEST <= limit < free.registers for limit in asked)
    assert len(asked) <= 7


def test_limits_that_ptxas_warns_of_or_cannot_meet_are_not_kept() -> None:
    free = Made(0, 150)
    assert fit(free, Made(None, 100), lambda limit: Made(limit, limit, warnings=1)) is free
    assert fit(free, Made(None, 100), lambda limit: None) is free


def test_a_kernel_that_spills_without_a_limit_gets_none() -> None:
    free = Made(0, 255, spills=8)
    assert fit(free, Made(None, 250), lambda limit: pytest.fail("no limit can help")) is free


def test_the_limit_goes_to_the_kernels_named() -> None:
    text = HEADER + KERNEL.format(name="one", directives=".reqntid 128\n") + KERNEL.format(name="two", directives="")
    assert limitable(text)
    made = parse(limited(text, {"one": 64}))
    assert [entry.performance for entry in made.entries] == [{"reqntid": (128,), "maxnreg": (64,)}, {}]


@pytest.mark.parametrize("text", [".maxnreg 80", "setmaxnreg.dec.sync.aligned.u32 40;"])
def test_kernels_whose_registers_are_spoken_for_are_not_limited(text: str) -> None:
    assert not limitable(text)
