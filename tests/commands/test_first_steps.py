"""What somebody sees who has just installed warplens: the help, completion, a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from warplens.commands import _VERBS, main
from warplens.driver import libcuda
from warplens.errors import WarplensError


def test_the_verbs_that_matter_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    said = capsys.readouterr().out
    first, others = said.split("Other verbs:")
    for verb in ("demo", "run", "findings", "report", "diff"):
        assert f"\n  {verb} " in first
        assert f"\n  {verb} " not in others
    assert all(f"\n  {verb} " in said for verb in _VERBS)


@pytest.mark.parametrize("script", ["print('done')", "raise RuntimeError('no active drivers')"])
def test_a_machine_without_a_gpu_is_named(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> None:
        raise WarplensError("no driver")

    monkeypatch.setattr(libcuda, "driver", absent)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(script)
    main(["run", "--auto", "script.py"])
    assert "this machine has no NVIDIA GPU" in " ".join(capsys.readouterr().err.split())


def test_unsure_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support.builders import Span, make_trace

    paths = [str(tmp_path / name) for name in ("a.warplens", "b.warplens")]
    for path, slow in zip(paths, (0, 3), strict=True):
        spans = [Span("load", 100 * i, 40 + slow * (i % 7), block=i) for i in range(6)]
        make_trace(spans).save(path)
    main(["diff", *paths])
    said = " ".join(capsys.readouterr().out.split())
    assert "UNSURE" in said
    assert "one launch of a version does not show how much launches vary" in said
    assert "the noise is larger" not in said, "nobody knows the noise of one launch"
    assert "Record more launches of both versions" in said
