"""Woven kernels whose parameters stay as they are: they find their buffer by a variable of their module."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.vector_add_launch import PTX
from warplens.auto.rules import Auto
from warplens.frontends.intercept.woven_module import cell_name, marked_text
from warplens.ptx.tree import parse
from warplens.weave.weaving import Weaving

KINDS = {"all classes": Auto(("loads", "stores", "lines")), "body": Auto(coarse="body"), "lives": Auto()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keeps", [False, True])
def test_parameters_stay_where_the_module_has_the_cell(kind: str, keeps: bool, tmp_path: Path) -> None:
    how = Weaving(fixed=kind != "all classes")
    woven, _, _ = marked_text(PTX, "vector_add", KINDS[kind], how, keeps_parameters=keeps)
    (plain,), (marked,) = parse(PTX).entries, parse(woven.text).entries
    assert len(marked.params) == len(plain.params) + (not keeps)
    assert (f".visible .global .align 8 .b64 {cell_name('vector_add')};" in woven.text) == keeps
    if shutil.which("ptxas"):
        (tmp_path / "k.ptx").write_text(woven.text)
        subprocess.run(["ptxas", "-arch=sm_90a", str(tmp_path / "k.ptx"), "-o", "/dev/null"], check=True)
