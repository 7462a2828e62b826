"""The calibration of woven marks without a GPU: what ptxas makes of its kernel."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.cuda_compilers import needs_sass, sass
from warplens.calibrate.known_lengths import SHORT
from warplens.calibrate.record_cost import source
from warplens.weave.weaver import weave
from warplens.weave.weaving import ParamBuffer


@needs_sass
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_a_region_has_the_same_instructions_as_plain_clock_reads(tmp_path: Path) -> None:
    """A store of the round before in it took a cycle, which no region of a kernel has unless it has that store too."""
    woven = weave(source(("short", "bare")), buffer=ParamBuffer(-1))
    (tmp_path / "k.ptx").write_text(woven.text)
    subprocess.run(["ptxas", "-arch=sm_90a", "k.ptx", "-o", "made.cubin"], cwd=tmp_path, check=True)
    code = sass((tmp_path / "made.cubin").read_bytes(), tmp_path)
    reads = [at for at, text in enumerate(code) if "CS2R.32" in text]
    work = [(first, last) for first, last in pairwise(reads) if last - first >= SHORT]
    assert len(work) == 2
    for first, last in work:
        assert [text.split()[0] for text in code[first + 1 : last]] == ["FFMA"] * SHORT
