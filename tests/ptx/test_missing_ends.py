"""Text without the semicolon or brace that ends it is refused in linear time, whatever it contains."""

from __future__ import annotations

import pytest

from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.weave.fit.register_limit import limited


@pytest.mark.parametrize(
    "text",
    [
        "add.u32 %r1, " + "/**/" * 50,
        "add.u32 %r1, " + "// x\n" * 50,
        "add.u32 %r1, " + "/* x */ // y\n" * 20,
        ".reg .b32 x" + " " * 3000 + "!",
        ".reg .b32 x" + "[ " * 500,
    ],
    ids=["block comments", "line comments", "both", "blanks", "brackets"],
)
def test_a_missing_semicolon_is_found_at_once(text: str) -> None:
    """Patterns that can match a comment in several ways try all combinations before they fail."""
    with pytest.raises(PtxError, match="PTX line"):
        parse(f".version 8.0\n.target sm_80\n.address_size 64\n.entry k()\n{{\n{text}\n}}\n")


def test_a_register_limit_finds_its_header_at_once() -> None:
    text = ".entry k()\n" + "/**/" * 50
    assert limited(text, {"k": 32}) == text
    assert ".maxnreg 32" in limited(text + "{ ret; }", {"k": 32})
