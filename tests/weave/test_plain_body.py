"""Blocks that are not selected run a plain copy of the kernel."""

from __future__ import annotations

import re

import pytest

from tests.support.looped_ptx import KERNEL
from tests.support.woven_launch import launch
from warplens.weave.weaver import weave
from warplens.weave.weaving import Selection, Weaving

GIVEN = ["OUT", 5, 32]


@pytest.mark.parametrize("select", [Selection(blocks=(1, 9, 2)), Selection(listed=(0, 4))])
@pytest.mark.parametrize("store", ["auto", "now", "spread"])
def test_two_bodies_record_and_compute_what_one_does(select: Selection, store: str) -> None:
    one, two = (
        launch(
            weave(KERNEL, how=Weaving(plain_copy=bodies, select=select, store=store, aligned=True)),
            "work",
            6,
            64,
            [*GIVEN, "BUFFER"],
            out=384,
            select=select,
        )
        for bodies in (False, True)
    )
    assert [[record[:4] for record in records] for _, records in two[0]] == [
        [record[:4] for record in records] for _, records in one[0]
    ]
    assert [header["block"] for header, _ in two[0]] == [header["block"] for header, _ in one[0]]
    assert (two[1] == one[1]).all()
    assert one[1].any()


def test_the_plain_copy_reads_no_clock() -> None:
    text = weave(KERNEL, how=Weaving(plain_copy=True, select=Selection(blocks=(0, 9, 4)))).text
    woven, plain = text.split("$wl_plain_work:")
    assert "%clock" in woven
    assert "@!%wl_dp bra.uni $wl_plain_work;" in woven
    assert "%clock" not in plain
    assert "%wl_" not in plain
    assert "st.global" in plain


def test_the_plain_copy_is_that_of_the_module_without_automatic_marks() -> None:
    plain = re.sub(r"// @warplens [^\n]*", "", KERNEL).replace("ret;", "membar.cta; ret;")
    how = Weaving(plain_copy=True, select=Selection(blocks=(0, 9, 4)))
    woven, copied = weave(KERNEL, how=how, plain=plain).text.split("$wl_plain_work:")
    assert "membar.cta" in copied
    assert "membar.cta" not in woven


def test_without_a_selection_there_is_one_body() -> None:
    assert weave(KERNEL, how=Weaving(plain_copy=True)).text == weave(KERNEL, how=Weaving()).text
