"""`warplens demo --source`: an edited copy of the sample kernel is compiled, run, checked and recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import warplens as wl
from warplens import samples
from warplens.commands import main

SOURCE = samples.SOURCE.read_text()
PTX = samples.SOURCE.with_suffix(".ptx").read_text()  # type: ignore[attr-defined]


def run(folder: Path, text: str, *more: str, name: str = "mine.cu") -> int:
    (folder / name).write_text(text)
    return main(["demo", "--source", str(folder / name), "-o", str(folder / "out"), *more])


def test_an_edited_kernel_is_recorded_with_its_own_regions(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    assert run(tmp_path, SOURCE.replace('"B load"', '"B fetch"').replace('"E load"', '"E fetch"')) == 0
    trace = wl.load(tmp_path / "out" / "demo.warplens")
    assert "fetch" in trace.regions
    assert "load" not in trace.regions
    assert (tmp_path / "out" / "mine.cu").read_text().count("fetch") == 2


def test_ptx_needs_no_compiler_and_launches_differ(tmp_path: Path) -> None:
    assert run(tmp_path, PTX, "--launches", "3", name="mine.ptx") == 0
    trace = wl.load(tmp_path / "out" / "demo.warplens")
    assert len(trace.launches) == 3
    means = {trace.select(launch=launch).stats()["load"].mean for launch in range(3)}
    assert len(means) == 3


@pytest.mark.parametrize(
    ("text", "name", "code", "said"),
    [
        (PTX.replace(".entry matmul", ".entry multiply"), "mine.ptx", 2, "must have the kernel"),
        (PTX.replace("%f9, %f8,", "%f9, %f9,"), "mine.ptx", 1, "the change is not correct"),
        ("this is no kernel", "mine.ptx", 1, "cannot parse"),
    ],
)
def test_a_kernel_that_cannot_serve_is_refused(
    text: str, name: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, text, name=name) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_source_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--source", str(tmp_path / "none.cu"), "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "none.cu: cannot be read (No such file or directory); check the path" in said
    assert "Errno" not in said
