"""Delays woven into one region: how they change the kernel's time and nothing else, and where they are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support import delay_kernels
from warplens import simulate
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.weave.delay_hazards import ELECTED, LOCKED
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import LaunchBuffer, ParamBuffer, SymbolBuffer, Weaving

STEPS = 6
LAST_TURN = 24
"""What a delay is longer than asked for in the interpreter, about."""


def delayed(text: str, region: str) -> Woven:
    return weave(text, how=Weaving(delay=region))


def run(text: str, delay: int, warps: int = 2) -> tuple[int, list[int]]:
    """The kernel's cycles and its result."""
    memory = simulate.GlobalMemory(1 << 20)
    out = memory.alloc(4 * 64 * warps)
    result = simulate.run(text, "k", 1, 32 * warps, [out, STEPS, delay], memory=memory)
    return result.cycles, memory.read(out, np.int32, 32 * warps).tolist()


def slope(text: str, region: str, delay: int = 400) -> float:
    """How much of the delay reaches the end of the kernel, less what the last turn of the loop adds to it."""
    woven = delayed(text, region).text
    (base, before), (late, after) = run(woven, 0), run(woven, delay)
    assert before == after == run(text, 0)[1], "the results are those of the plain kernel"
    return (late - base) / ((delay + LAST_TURN) * STEPS)


def test_a_cycle_in_a_serial_chain_reaches_the_end() -> None:
    assert slope(delay_kernels.serial(), "first") == pytest.approx(1.0, abs=0.05)
    assert slope(delay_kernels.serial(), "second") == pytest.approx(1.0, abs=0.05)


BETWEEN = Weaving(between=True)


@pytest.mark.parametrize(
    ("pair", "executions"),
    [(("", "first"), 1), (("first", "second"), STEPS), (("second", "first"), STEPS - 1), (("second", ""), 1)],
)
def test_code_between_regions_is_delayed_once_per_execution(pair: tuple[str, str], executions: int) -> None:
    """Also where the same code leads to two regions: from the end of `second` to `first` and to the exit."""
    text, lines = delay_kernels.apart(), 0

    def located(found: re.Match[str]) -> str:
        nonlocal lines
        lines += 1
        return f"\t.loc 1 {lines} 1\n{found[0]}"

    text = re.sub(r"^\t(?!\.|//|@).*;$", located, text, flags=re.M) + '\t.file 1 "/k.py"\n'
    woven = weave(text, how=BETWEEN)
    names = {0: "", **woven.regions}
    region = {(names[a], names[b]): names[own] for a, b, own in woven.between["k"]}[pair]
    delayed = weave(text, how=Weaving(between=True, delay=region)).text
    (base, before), (late, after) = run(delayed, 0), run(delayed, 400)
    assert before == after == run(text, 0)[1]
    assert (late - base) / (400 + LAST_TURN) == pytest.approx(executions, abs=0.1)


def test_an_exit_under_a_condition_is_delayed_if_it_is_taken() -> None:
    early = "\tsetp.eq.u32 %p6, %r4, 1;\n\t@%p6 ret;\n"
    text = delay_kernels.HEAD + delay_kernels.region("first", delay_kernels.work(100, "a")) + early + delay_kernels.TAIL
    delayed = weave(text, how=Weaving(between=True, delay="work")).text
    assert delayed.count("bra $wl_spin_k_") == 3, "before the region and at two exits"
    for warps in (1, 2):
        (base, before), (late, after) = run(delayed, 0, warps), run(delayed, 400, warps)
        assert before == after == run(text, 0, warps)[1]
        assert (late - base) / (400 + LAST_TURN) == pytest.approx(2, abs=0.1)


def test_a_cycle_behind_a_longer_wait_is_hidden() -> None:
    kernel = delay_kernels.two_sides(producer=200, consumer=1400)
    assert slope(kernel, "produce") == pytest.approx(0.0, abs=0.02)
    assert slope(kernel, "consume") == pytest.approx(1.0, abs=0.05)


def test_a_delay_past_the_slack_reaches_the_end_in_part() -> None:
    assert slope(delay_kernels.two_sides(producer=200, consumer=450), "produce") == pytest.approx(0.5, abs=0.1)


def test_one_machine_code_serves_every_delay_and_other_marks_cost_nothing() -> None:
    woven = delayed(delay_kernels.serial(), "first")
    assert woven.entries == {"k": 1}
    assert woven.regions == {1: "first"}
    assert woven.text.count("%clock") == delay_kernels.serial().count("%clock") + 2, "one probe, and no record"
    assert "st.global" in woven.text
    assert woven.text.count("st.global") == 1
    times = [run(woven.text, delay)[0] for delay in (0, 100, 1000, 10_000)]
    assert times == sorted(times)
    assert len(set(times)) == 4


def test_without_a_delay_the_kernel_takes_as_long_as_the_plain_one_but_for_a_branch() -> None:
    plain, woven = delay_kernels.serial(), delayed(delay_kernels.serial(), "first").text
    assert 0 <= run(woven, 0)[0] - run(plain, 0)[0] <= 40 * STEPS


def test_a_kernel_without_the_region_stays_as_it_is() -> None:
    assert not delayed(delay_kernels.serial(), "third").entries


def test_every_begin_of_the_region_is_delayed() -> None:
    text = delay_kernels.serial().replace(" second", " first")
    assert delayed(text, "first").entries == {"k": 2}
    assert slope(text, "first") == pytest.approx(2.0, abs=0.1)


def test_lanes_that_are_not_there_are_not_waited_for() -> None:
    text = delay_kernels.elected("setp.lt.u32 %p4, %r2, 7;")
    woven = delayed(text, "inside").text
    assert run(woven, 300)[1] == run(text, 0)[1]
    assert run(woven, 300)[0] - run(woven, 0)[0] == pytest.approx(300 + LAST_TURN, abs=30)


@pytest.mark.parametrize(
    ("text", "region", "reason"),
    [
        (delay_kernels.LOCKED, "inside", LOCKED),
        (delay_kernels.LOCKED, "after", ""),
        (delay_kernels.FLAG, "inside", ""),
        (delay_kernels.ADDED, "inside", ""),
        (delay_kernels.elected("setp.eq.u32 %p4, %r2, 0;"), "inside", ELECTED),
        (delay_kernels.elected("and.b32 %r20, %r2, 31; setp.eq.u32 %p4, %r20, 0;"), "inside", ELECTED),
        (delay_kernels.elected("elect.sync _|%p4, 0xffffffff;"), "inside", ELECTED),
        (delay_kernels.elected("setp.eq.u32 %p4, %r2, 0;"), "outside", ""),
        (delay_kernels.elected("setp.eq.u32 %p4, %r4, 1;"), "inside", ""),
        (delay_kernels.elected("setp.lt.u32 %p4, %r2, 7;"), "inside", ""),
    ],
)
def test_no_delay_in_a_lock_or_an_elected_branch(text: str, region: str, reason: str) -> None:
    if not reason:
        assert delayed(text, region).entries
        return
    with pytest.raises(PtxError, match=reason):
        delayed(text, region)


def test_a_release_on_one_path_alone_does_not_free_the_other() -> None:
    text = delay_kernels.LOCKED.replace("	atom.global.exch", "	@%p1 bra $L_kept;\n	atom.global.exch").replace(
        "	// @warplens B after", "$L_kept:\n	// @warplens B after"
    )
    with pytest.raises(PtxError, match=LOCKED):
        delayed(text, "after")


def test_a_store_releases_the_lock_of_its_address() -> None:
    text = delay_kernels.LOCKED.replace("atom.global.exch.b32 %r21, [%rd1], 0", "st.volatile.global.u32 [%rd1+0], 0")
    assert delayed(text, "after").entries
    with pytest.raises(PtxError, match=LOCKED):
        delayed(text, "inside")


@pytest.mark.parametrize("buffer", [SymbolBuffer(), LaunchBuffer(), ParamBuffer(indirect=True)])
def test_a_delay_needs_a_parameter_that_each_launch_sets(buffer: object) -> None:
    with pytest.raises(PtxError, match="must be a parameter"):
        weave(delay_kernels.serial(), buffer=buffer, how=Weaving(delay="first"))  # type: ignore[arg-type]


def test_a_called_function_is_refused() -> None:
    called = (
        ".func f(.param .u32 a) {\n	.reg .b32 %r<3>;\n	// @warplens B inner\n	mov.u32 %r1, 0;\n	ret;\n}\n"
    )
    text = delay_kernels.serial().replace(".visible .entry", called + ".visible .entry")
    with pytest.raises(PtxError, match="not inlined"):
        delayed(text, "inner")


def test_the_woven_text_is_valid_ptx() -> None:
    assert parse(delayed(delay_kernels.two_sides(10, 20), "consume").text).entries
