"""Which blocks of marks share a store, and that they share it where they should."""

from __future__ import annotations

import pytest

from tests.support.ptx_kernels import kernel
from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.tree import parse
from warplens.weave.mark_sites import outline
from warplens.weave.stores.block_chains import chain_blocks
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving

# %r1 is a parameter, so every branch below is the same for the whole warp.
CASES = {
    "one after the other": ("// @warplens I a\nadd.u32 %r4, %r1, 1;\n// @warplens I b\nadd.u32 %r4, %r1, 1;", ["ab"]),
    "around a branch": (
        "// @warplens I a\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra $x;\nadd.u32 %r4, %r1, 1;\n$x:\n// @warplens I b\n"
        "add.u32 %r4, %r1, 1;", ["ab"]),
    "one way has a mark": (
        "// @warplens I a\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra $x;\n// @warplens I b\nadd.u32 %r4, %r1, 1;\n$x:\n"
        "// @warplens I c\nadd.u32 %r4, %r1, 1;", ["a", "b", "c"]),
    "around a loop": (
        "// @warplens I a\n$x:\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r1;\n@%p1 bra $x;\n// @warplens I b\n"
        "add.u32 %r4, %r1, 1;", ["ab"]),
    "into a loop": (
        "// @warplens I a\n$x:\n// @warplens I b\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r1;\n@%p1 bra $x;\n"
        "// @warplens I c\nadd.u32 %r4, %r1, 1;", ["a", "b", "c"]),
    "within a loop": (
        "$x:\n// @warplens I a\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra $y;\nadd.u32 %r5, %r4, 1;\n$y:\n// @warplens I b\n"
        "add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r1;\n@%p1 bra $x;", ["ab"]),
    "a loop that may be left": (
        "$x:\n// @warplens I a\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra $y;\n// @warplens I b\nadd.u32 %r4, %r4, 1;\n"
        "bra $x;\n$y:", ["a", "b"]),
    "a return between": (
        "// @warplens I a\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 ret;\n// @warplens I b\nadd.u32 %r4, %r1, 1;", ["a", "b"]),
    "a mark alone in a loop": (
        "$x:\n// @warplens I a\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r1;\n@%p1 bra $x;", ["a"]),
    "in turn, text the other way round": (
        "bra $a;\n$b:\n// @warplens I b\nadd.u32 %r4, %r1, 1;\nbra $end;\n$a:\n// @warplens I a\nadd.u32 %r4, %r1, 1;\n"
        "bra $b;\n$end:", ["ab"]),
    "a call between": ("// @warplens I a\ncall f;\n// @warplens I b\nadd.u32 %r4, %r1, 1;", ["ab"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_blocks_that_are_always_passed_in_turn_are_found(case: str) -> None:
    body, expected = CASES[case]
    function = parse(kernel(body)).entries[0]
    blocks = outline(function, {}).blocks
    chains = chain_blocks(blocks, ControlFlow(function), 32)
    assert sorted("".join(site.mark.name for block in chain for site in block.sites) for chain in chains) == expected
    assert [len(chain) for chain in chain_blocks(blocks, ControlFlow(function), 1)] == [1] * len(blocks)


def test_blocks_in_turn_share_one_store() -> None:
    text = kernel(CASES["within a loop"][0])
    for join, stores in ((True, 1), (False, 2)):
        woven = weave(text, buffer=SymbolBuffer(), how=Weaving(store="spread", join=join))
        assert woven.stores == {"k": "spread"}
        loop = woven.text[woven.text.index("$x:") : woven.text.index("bra $x;")]
        assert loop.count("st.global") == stores
