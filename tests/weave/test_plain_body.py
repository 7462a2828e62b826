"""Blocks that are not selected run a plain copy of the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.golden_ptx import assemble
from tests.support.looped_ptx import KERNEL
from tests.support.marked_ptx import GOLDEN, source
from tests.support.woven_launch import launch
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.weave.weaver import weave
from warplens.weave.weaving import Selection, SymbolBuffer, Weaving

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


def test_a_copy_of_debug_code_stays_in_the_copy() -> None:
    """With -G, nvcc also jumps to labels of the line table."""
    text = KERNEL.replace("\tmov.u32 %r7, 0;\n", "\tmov.u32 %r7, 0;\n\tbra.uni $L__tmp3;\n$L__tmp3:\n")
    select = Selection(listed=(0,))
    results = [
        launch(weave(text, how=Weaving(plain_copy=bodies, select=select)), "work", 3, 64, [*GIVEN, "BUFFER"],
               out=192, select=select)[1]
        for bodies in (False, True)
    ]  # fmt: skip
    assert (results[0] == results[1]).all()
    copied = weave(text, how=Weaving(plain_copy=True, select=select)).text.split("$wl_record_work:")[0]
    assert "\n$L__tmp3:" in copied


def test_the_plain_copy_reads_no_clock() -> None:
    text = weave(KERNEL, how=Weaving(plain_copy=True, select=Selection(blocks=(0, 9, 4)))).text
    dispatch, plain, woven = re.split(r"@%wl_dp bra.uni \$wl_record_work;|\$wl_record_work:", text)
    assert "%clock" in woven
    assert "%clock" not in dispatch + plain
    assert "%wl_" not in plain
    assert "st.global" in plain


def test_the_plain_copy_is_that_of_the_module_without_automatic_marks() -> None:
    plain = re.sub(r"// @warplens [^\n]*", "", KERNEL).replace("ret;", "membar.cta; ret;")
    how = Weaving(plain_copy=True, select=Selection(blocks=(0, 9, 4)))
    copied, woven = weave(KERNEL, how=how, plain=plain).text.split("$wl_record_work:")
    assert "membar.cta" in copied
    assert "membar.cta" not in woven


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.ptx")), ids=lambda path: path.stem)
@pytest.mark.parametrize("mode", ["trace", "aggregate"])
def test_real_kernels_assemble_with_two_bodies(path: Path, mode: str, tmp_path: Path) -> None:
    plain = source(path)
    how = Weaving(plain_copy=True, mode=mode, select=Selection(blocks=(0, 1 << 30, 17)))
    marked = mark_ptx(plain, Auto.of(True, None, 256)).text
    text = weave(marked, how=how, buffer=SymbolBuffer(), plain=plain).text
    assert "$wl_record_" in text
    assemble(text, path.stem, tmp_path)


def test_without_a_selection_there_is_one_body() -> None:
    assert weave(KERNEL, how=Weaving(plain_copy=True)).text == weave(KERNEL, how=Weaving()).text


def test_kernels_with_fixed_slots_have_a_plain_copy() -> None:
    text = re.sub(r"// @warplens \w (?!all\b)[^\n]*", "", KERNEL)
    how = Weaving(fixed=True, plain_copy=True, select=Selection(blocks=(1, 9, 2)))
    woven = weave(text, how=how)
    assert "%clock" not in woven.text.split("$wl_record_work:")[0]
    tracks, out, _ = launch(woven, "work", 6, 64, [*GIVEN, "BUFFER"], out=384, select=how.select, parse=False)
    assert [header["block"] for header, _ in tracks] == [1, 1, 3, 3, 5, 5]
    assert (out == launch(weave(text), "work", 6, 64, [*GIVEN, "BUFFER"], out=384)[1]).all()
