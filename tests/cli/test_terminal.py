"""What terminals, locales and file systems do to the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import make_capture
from warplens.commands import main
from warplens.decode import decode

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(decode(make_capture(800, blocks=8)).save(tmp_path_factory.mktemp("terminal") / "t.warplens"))


@pytest.mark.parametrize(
    "arguments",
    [["stats"], ["stats", "--tree"], ["stats", "--findings"], ["info"], ["view", "--terminal"], ["diagnose"]],
    ids=" ".join,
)
def test_output_that_is_not_utf8_gets_plain_letters(trace: str, arguments: list[str]) -> None:
    verb, *options = arguments
    done = subprocess.run(
        [sys.executable, "-m", "warplens", verb, trace, *options],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert done.stdout.isascii()
    if arguments == ["stats"]:
        assert b" us" in done.stdout
        assert b"?" not in done.stdout


def test_a_file_name_that_is_not_utf8_is_read(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff.warplens")
    try:
        odd.write_bytes(Path(trace).read_bytes())
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    assert main(["info", str(odd)]) == 0
    assert "odd?.warplens" in capsys.readouterr().out
    for verb in ("report", "stats"):
        assert main([verb, str(odd)]) == 0
    assert "load" in capsys.readouterr().out


def test_a_trace_that_may_not_be_read_says_so(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", trace)

    monkeypatch.setattr("builtins.open", refuse)  # tests may run as root, whom no mode keeps out
    assert main(["stats", trace]) == 1
    said = "file: cannot be read (Permission denied); check its permissions"
    assert capsys.readouterr().err == f"warplens: {trace}: {said}\n"


def test_a_trace_cut_short_says_so(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = tmp_path / "part.warplens"
    part.write_bytes(Path(trace).read_bytes()[:-100])
    assert main(["stats", str(part)]) == 1
    assert "is cut short" in capsys.readouterr().err
