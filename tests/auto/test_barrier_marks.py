"""Where barrier marks go, in PTX of compilers and in forms that they may have."""

from __future__ import annotations

import re

import pytest

from tests.support.golden_ptx import GOLDEN
from warplens.auto.ptx import mark_barriers, mark_ptx
from warplens.auto.rules import Auto
from warplens.weave.mark_comments import PREFIX

HEAD = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k()
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	.reg .pred %p<9>;
	mov.u32 %r1, 64;
	.loc 1 7 0
"""
TAIL = '\tret;\n}\n.file 1 "k.cu"\n'
TRITON = "\t{\n\t.reg .pred %c;\n$W:\n\tmbarrier.try_wait.parity.shared.b64 %c, [%r1], %r2;\n\t@!%c bra $W;\n\t}\n"


def marks(body: str, auto: str | bool = True) -> list[str]:
    """The marks and barrier instructions of a kernel, in order."""
    text = mark_ptx(HEAD + body + TAIL, Auto.of(auto)).text
    found = re.findall(rf"// {PREFIX}(.*)|((?:mbarrier|cp|bar|barrier)\.[a-z_]+)", text)
    return [mark or instruction for mark, instruction in found]


def test_a_wait_records_its_barrier_before_it_waits() -> None:
    assert marks(TRITON) == [
        "B wait%20k.cu:7", "S wait%20k.cu:7 wait u32:%r1 %r2 - -", "mbarrier.try_wait", "E wait%20k.cu:7"
    ]  # fmt: skip


def test_a_test_that_may_fail_counts_only_if_it_succeeded() -> None:
    body = "\tmbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;\n\t@%p1 mov.u32 %r3, 1;\n"
    assert marks(body) == [
        "B wait%20k.cu:7", "mbarrier.test_wait", "S wait%20k.cu:7 wait u32:%r1 0 1 %p1", "E wait%20k.cu:7"
    ]  # fmt: skip


def test_an_arrival_has_its_predicate_and_an_election_none() -> None:
    body = (
        TRITON + "\t@%p1 mbarrier.arrive.shared::cta.b64 _, [%r5+8];\n\telect.sync %r7|%p2, -1;\n"
        "\tand.pred %p3, %p2, %p1;\n\t@%p2 mbarrier.arrive.shared::cta.b64 _, [%r6];\n"
        "\t@%p3 mbarrier.arrive.shared::cta.b64 _, [%r7];\n"
    )
    text = mark_ptx(HEAD + body + TAIL, Auto.of(True)).text
    found = re.findall(r"(?:@(!?%p\d) bra \S+\s+)?// @warplens S \S+ arrive (\S+)", text)
    assert found == [("!%p1", "u32:%r5+8"), ("", "u32:%r6"), ("!%p1", "u32:%r7")], "others jump over the record"


def test_copies_to_one_barrier_need_one_record() -> None:
    copy = "\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 64, [%r4];\n"
    body = TRITON + "\tmbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;\n" + copy + copy
    assert [mark for mark in marks(body) if " copy " in mark] == ["S copy%20issue%20k.cu:7 copy u32:%r4 - - -"]


def test_named_barriers_are_recorded_where_they_are_marked() -> None:
    body = "\tbar.sync 1, 64;\n\tmov.u32 %r3, 1;\n"
    assert not any(mark.startswith("S") for mark in marks(body, "waits,edges"))
    assert "S barrier%20k.cu:7 sync number:1 - 64 -" in marks(body)
    assert not any(mark.startswith("S") for mark in marks(body.replace("1, 64", "0"))), "the regions say who came last"


def test_two_barriers_in_one_region_are_not_told_apart() -> None:
    assert not any(mark.startswith("S") for mark in marks("\tbar.sync 1, 64;\n\tbar.sync 2, 64;\n", "barriers,edges"))


def test_a_loop_that_works_between_its_tests_is_no_wait() -> None:
    body = (
        "$L:\n\tmbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;\n\tmbarrier.arrive.shared::cta.b64 _, [%r5];\n"
        "\t@!%p1 bra $L;\n"
    )
    assert [mark.split()[0] for mark in marks(body)] == ["B", "mbarrier.try_wait", "S", "E", "S", "mbarrier.arrive"]


def test_a_barrier_whose_address_changes_in_the_loop_is_not_recorded() -> None:
    body = TRITON.replace("\t@!%c", "\tadd.u32 %r1, %r1, 8;\n\t@!%c")
    assert not any(mark.startswith("S") for mark in marks(body))


def test_without_the_class_nothing_is_recorded() -> None:
    assert not any(mark.startswith("S") for mark in marks(TRITON, "waits"))
    assert any(mark.startswith("S") for mark in marks(TRITON, "edges"))


@pytest.mark.parametrize("name", ["triton_matmul_sm90", "nvcc_kernels_lineinfo", "triton_softmax", "cute_saxpy"])
def test_kernels_without_mbarriers_change_in_nothing(name: str) -> None:
    text = (GOLDEN / f"{name}.ptx").read_text()
    without = ",".join(kind for kind in Auto.of(True).classes if kind != "edges")
    assert mark_ptx(text, Auto.of(True)).text == mark_ptx(text, Auto.of(without)).text


def test_a_mark_by_hand_gets_the_barrier_of_the_next_instruction() -> None:
    body = (
        "\t// @warplens B full\n\t// @warplens S full wait next: - - -\n" + TRITON + "\t// @warplens E full\n"
        "\t// @warplens S used arrive next: - - -\n\t@%p1 mbarrier.arrive.shared::cta.b64 _, [%r5];\n"
    )
    text = mark_barriers(HEAD + body + TAIL, automatic=False)
    assert re.findall(r"// @warplens S (.*)", text) == ["full wait u32:%r1 %r2 - -", "used arrive u32:%r5 - - -"]
    skipped = r"@!%p1 bra (\S+);\s+// @warplens S used .*\s+@%p1 mbarrier\.arrive.*\s+\1:"
    assert re.search(skipped, text), "the record is stored behind the arrival"
    assert text.index("S full") > text.index("B full")


def test_a_mark_by_hand_without_a_barrier_is_dropped() -> None:
    body = "\t// @warplens B full\n\t// @warplens S full wait next: - - -\n\tmov.u32 %r1, 1;\n\t// @warplens E full\n"
    assert "next:" not in mark_barriers(HEAD + body + TAIL, automatic=False)
