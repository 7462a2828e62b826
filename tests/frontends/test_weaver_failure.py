"""Whatever the weaver fails on, the program goes on with the plain kernel."""

from __future__ import annotations

from typing import Any

import pytest

from warplens.auto.rules import Auto
from warplens.frontends.intercept import woven_module
from warplens.frontends.intercept.woven_module import Unavailable, twin_of
from warplens.weave.weaving import Weaving

PTX = (
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 p)\n{\nst.global.u32 [0], 1;\nret;\n}\n"
)


def test_a_bug_in_the_weaver_leaves_the_kernel_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(woven_module, "weave", fail)
    with pytest.raises(Unavailable, match=r"the weaver failed: ZeroDivisionError\('a bug'\)"):
        twin_of(PTX, "k", Auto.of("stores"), Weaving(), 0)


def test_ptx_that_cannot_be_parsed_leaves_the_kernel_plain() -> None:
    with pytest.raises(Unavailable, match="PTX line 6"):
        twin_of(PTX.replace("st.global", "!st.global"), "k", Auto.of("stores"), Weaving(), 0)
