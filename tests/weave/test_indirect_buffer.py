"""Buffers found by a cell in device memory, as kernels in CUDA graphs find theirs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.golden_ptx import GOLDEN, ptxas, sprinkle
from tests.support.looped_ptx import KERNEL, POLICIES
from tests.support.woven_launch import launch
from warplens.errors import WarplensError
from warplens.weave.fit.register_limit import limited
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, Selection, Weaving

KERNELS = (
    "triton_matmul_sm80", "triton_matmul_bf16_sm80", "triton_matmul_sm90", "triton39_matmul_sm80", "triton_softmax",
)  # fmt: skip


def words(tracks: list[tuple[Any, list[Any]]]) -> list[Any]:
    """All that a track says besides times."""
    return [
        (
            int(header["block"]),
            int(header["warp"]),
            int(header["written"]),
            int(header["state"]),
            [r[:4] for r in found],
        )
        for header, found in tracks
    ]


@pytest.mark.parametrize("full", ["stop", "ring"])
@pytest.mark.parametrize("store", POLICIES)
@pytest.mark.parametrize("select", [Selection(), Selection(warps=(1,), blocks=(1, 3, 1)), Selection("block")])
def test_the_records_are_those_of_a_direct_buffer(full: str, store: str, select: Selection) -> None:
    how = Weaving(full=full, store=store, aligned=True, select=select)
    given = ("OUT", 5, 32)
    direct, plain, _ = launch(weave(KERNEL, how=how), "work", 3, 64, [*given, "BUFFER"], out=192, select=select)
    woven = weave(KERNEL, buffer=ParamBuffer(-1, indirect=True), how=how)
    tracks, out, _ = launch(woven, "work", 3, 64, [*given, "CELL"], out=192, select=select)
    np.testing.assert_array_equal(out, plain)
    assert words(tracks) == words(direct)
    assert any(found for _, found in tracks)


@pytest.mark.parametrize("store", POLICIES)
@pytest.mark.parametrize("cell", ["CELL", 0])
def test_a_cell_that_holds_0_and_no_cell_record_nothing(store: str, cell: Any) -> None:
    woven = weave(KERNEL, buffer=ParamBuffer(-1, indirect=True), how=Weaving(store=store, aligned=True))
    tracks, out, _ = launch(woven, "work", 3, 64, ["OUT", 5, 32, cell], out=192, recorded=False)
    assert out.any()
    assert not any(header["magic"] or header["written"] or found for header, found in tracks)


@pytest.mark.parametrize("name", KERNELS)
def test_it_assembles_in_two_registers_more_without_a_spill(name: str, tmp_path: Path) -> None:
    """Left alone, ptxas takes up to six more here, which it does not need: weaving limits them, as for every kernel."""
    text = (GOLDEN / f"{name}.ptx").read_text()
    if "@warplens" not in text:
        text = sprinkle(text)

    def assemble(woven: Woven, most: int | None = None) -> int:
        (entry,) = woven.entries
        source = tmp_path / "woven.ptx"
        source.write_text(woven.text if most is None else limited(woven.text, {entry: most}))
        target = re.findall(r"^\.target\s+(\w+)", text, re.M)[0]
        command = [ptxas(), f"--gpu-name={target}", "-v", str(source), "-o", str(tmp_path / "out.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "0 bytes spill stores" in done.stderr
        return int(re.findall(r"Used (\d+) registers", done.stderr)[0])

    direct = assemble(weave(text, buffer=ParamBuffer(-1)))
    assert assemble(weave(text, buffer=ParamBuffer(-1, indirect=True)), direct + 2) <= direct + 2


def test_the_parameter_must_exist() -> None:
    with pytest.raises(WarplensError, match="no parameter 9"):
        weave(KERNEL, buffer=ParamBuffer(9, indirect=True))
