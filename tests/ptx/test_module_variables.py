"""Which variables a copy of a kernel can have for itself, which it must take over, and which it cannot share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import GOLDEN
from warplens.ptx.module_variables import KernelVariables, kernel_variables
from warplens.ptx.tree import parse

REGISTERS = ".reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .b32 tile[32]; .local .b32 spill[4];"
DECLARED = """.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .global .align 4 .u32 other[4];
.const .align 4 .u32 taps[4];
"""


def variables(body: str, declared: str = DECLARED, more: str = "") -> KernelVariables:
    text = f".version 8.0\n.target sm_80\n.address_size 64\n{declared}{more}"
    return kernel_variables(parse(f"{text}.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"), "k")


READ_ONLY = {
    "a load": "ld.global.u32 %r1, [table+4];",
    "a generic load": "mov.u64 %rd1, table; cvta.global.u64 %rd2, %rd1; add.s64 %rd3, %rd2, %rd4; ld.u32 %r1, [%rd3];",
    "a vector load": "mov.u64 %rd1, table; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];",
    "a comparison": "mov.u64 %rd1, table; setp.eq.u64 %p1, %rd1, 0; ld.global.u32 %r1, [%rd1];",
    "a copy to shared memory": "mov.u64 %rd1, table; cp.async.ca.shared.global [tile], [%rd1], 4;",
    "an address in two halves": (
        "mov.u64 %rd1, table; mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd2, {%r1, %r2}; ld.global.u32 %r3, [%rd2];"
    ),
    "a value that is stored": "ld.global.u32 %r1, [table]; st.shared.u32 [tile], %r1;",
    "a register that is used again": (
        "mov.u64 %rd1, table; ld.global.u32 %r1, [%rd1]; ld.param.u64 %rd2, [p]; st.global.u32 [%rd2], %r1;"
    ),
}
WRITTEN = {
    "a store": "st.global.u32 [table], 1;",
    "a store under a predicate": "@%p1 st.global.u32 [table+8], 1;",
    "a vector store": "mov.u64 %rd1, table; st.global.v2.u32 [%rd1], {%r1, %r2};",
    "a store through a generic address": "mov.u64 %rd1, table; cvta.global.u64 %rd2, %rd1; st.u32 [%rd2+4], 1;",
    "an atomic at an offset": "atom.global.add.u32 %r1, [table+12], 1;",
    "a reduction": "mov.u64 %rd1, table; red.global.add.u32 [%rd1], 1;",
    "an address that is stored": "mov.u64 %rd1, table; st.local.u64 [spill], %rd1;",
    "an address behind arithmetic": "mov.u64 %rd1, table; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], 1;",
    "one of two addresses": (
        "mov.u64 %rd1, other; @%p1 mov.u64 %rd1, table; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], 2;"
    ),
    "a selected address": (
        "mov.u64 %rd1, other; mov.u64 %rd2, table; selp.b64 %rd3, %rd1, %rd2, %p1; st.global.u32 [%rd3], 2;"
    ),
    "an address that a later block writes to": (
        "bra $B; $A: st.global.u32 [%rd2], 1; ret; $B: mov.u64 %rd1, table; mov.u64 %rd2, %rd1; bra $A;"
    ),
    "a call": "{ .param .b64 a; mov.u64 %rd1, table; st.param.b64 [a], %rd1; call f, (a); }",
    "a bulk copy": "mov.u64 %rd1, table; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [tile], 16;",
    "an unknown instruction": "mov.u64 %rd1, table; discard.global.L2 [%rd1], 128;",
    "a load that waits for a change": "mov.u64 %rd1, table; ld.volatile.global.u32 %r1, [%rd1];",
}


@pytest.mark.parametrize("body", READ_ONLY.values(), ids=READ_ONLY)
def test_a_variable_that_is_only_read_is_taken_over(body: str) -> None:
    assert variables(body) == KernelVariables(("table",), {})


@pytest.mark.parametrize("body", WRITTEN.values(), ids=WRITTEN)
def test_a_variable_that_may_change_is_refused(body: str) -> None:
    found = variables(body, more=".func f(.param .b64 a) { ret; }\n")
    assert "table" in found.refused
    assert "PTX line" in found.refused["table"]


def test_both_of_two_possible_variables_are_refused() -> None:
    assert set(variables(WRITTEN["one of two addresses"]).refused) == {"table", "other"}


def test_variables_that_the_kernel_does_not_mention_do_not_matter() -> None:
    writer = ".visible .entry w()\n{\nst.global.u32 [other], 1;\nret;\n}\n"
    assert variables("ld.const.u32 %r1, [taps];", more=writer) == KernelVariables(("taps",), {})
    assert set(variables("ld.global.u32 %r1, [other];", more=writer).refused) == {"other"}


def test_a_callee_counts_as_part_of_the_kernel() -> None:
    callee = ".func f()\n{\n.reg .b32 %r1;\natom.global.inc.u32 %r1, [other], 7;\nret;\n}\n"
    assert set(variables("call f, ();", more=callee).refused) == {"other"}


def test_a_pointer_in_an_initialiser_may_be_written_through() -> None:
    pointer = ".global .align 8 .u64 pointer = generic(table);\n"
    found = variables("ld.global.u64 %rd1, [pointer];", more=pointer)
    assert found.refused == {"table": "the variable pointer holds its address"}


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (".extern .global .align 4 .u32 table[4];\n", "another module"),
        (".global .texref table;\n", "binds"),
        (".visible .global .attribute(.managed) .align 4 .u32 table[4];\n", "at any time"),
    ],
)
def test_variables_that_others_change_are_refused(declared: str, reason: str) -> None:
    assert reason in variables("ld.global.u32 %r1, [table];", declared).refused["table"]


def test_a_local_name_hides_the_variable() -> None:
    assert variables(".shared .align 4 .u32 other[4]; st.shared.u32 [other], 1;").refused == {}


@pytest.mark.parametrize("path", sorted((GOLDEN / "ptx").glob("*.ptx")), ids=lambda path: path.stem)
def test_only_the_counter_of_the_real_modules_is_written(path: Path) -> None:
    """tests/golden/ptx/kernels.cu has one variable, which one kernel increments."""
    module = parse(path.read_text())
    refused = {entry.name: kernel_variables(module, entry.name).refused for entry in module.entries}
    for entry in module.entries:
        assert set(refused[entry.name]) == ({"visits"} if "visits" in entry.text() else set())
