"""What terminals, locales and file systems do to the command line."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders import Span, make_trace
from tests.support.synthetic_capture import make_capture
from warplens.analyse.finding import SUPPORTED, UNDECIDED, Finding, Gain
from warplens.analyse.findings import Findings, findings
from warplens.commands import main
from warplens.commands.doctor import DoctorCheck, _table
from warplens.commands.shared.analysis_tables import print_findings
from warplens.decode import decode
from warplens.decode.trace_loader import load

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(decode(make_capture(800, blocks=12)).save(tmp_path_factory.mktemp("terminal") / "t.warplens"))


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
    assert r"odd\udcff.warplens" in capsys.readouterr().out
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


@pytest.mark.parametrize("width", [60, 90])
def test_paragraphs_are_blocks_of_whole_words_in_a_terminal_and_lines_in_a_pipe(width: int) -> None:
    found = findings(load(GOLDEN / "findings" / "serial.warplens"))
    shown, piped = io.StringIO(), io.StringIO()
    print_findings(Console(file=shown, force_terminal=True, width=width, color_system=None), found)
    print_findings(Console(file=piped, width=width), found)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()
    assert max(map(len, plain)) <= width
    assert all(line.startswith("   ") for line in plain if not line.startswith(("1.", "undecided")))
    assert " ".join(" ".join(plain).split()) == " ".join(piped.getvalue().split())
    assert len(piped.getvalue().splitlines()) == 6 * len(found) + len(found.undecided)


def test_what_is_the_same_of_many_kernels_is_printed_once() -> None:
    said = Finding("host time", "Times of the CPU.", "Record on a GPU.", "a", Gain(0, 0), SUPPORTED, "high")
    unsure = replace(said, kind="cache misses", verdict=UNDECIDED)
    kernels = [f"k{number}" for number in range(300)]
    found = Findings(
        tuple(replace(said, kernel=name) for name in kernels),
        (*(replace(unsure, kernel=name) for name in kernels[:2]), replace(unsure, kernel="k9", what="Other times.")),
    )
    out = io.StringIO()
    print_findings(Console(file=out, width=200), found)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("1. host time in 300 kernels (k0, k1, k2, …): ")
    assert sum("Times of the CPU." in line for line in lines) == 2
    assert lines[-2].startswith("undecided (cache misses in 2 kernels (k0, k1)): ")
    assert lines[-1] == "undecided (cache misses in k9): Other times. Record on a GPU."


def test_commands_to_go_on_with_work_from_any_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my [bold] runs"
    assert main(["demo", "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"  {folder / 'demo.warplens'} (" in out
    line = next(line for line in out.splitlines() if " findings " in line)
    assert shlex.split(line)[-1] == str(folder / "demo.warplens")


@pytest.mark.parametrize(("given", "meant"), [("--json", ""), ("--widht", " (did you mean '--width'?)")])
def test_only_a_likely_option_is_suggested(given: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", given, "t.warplens"]) == 2
    assert capsys.readouterr().err == f"warplens view: no such option '{given}'{meant}; see warplens view --help\n"


def test_a_full_disk_is_not_called_a_file(trace: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with full.open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "warplens", "stats", trace], stdout=out, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "warplens: standard output: No space left on device\n")


def test_names_are_sorted_from_a_to_z(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", trace, "--sort", "region", "--json"]) == 0
    names = [row["region"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert names == sorted(names)
    assert main(["stats", trace, "--by", "block", "--sort", "group", "--json"]) == 0
    groups = [int(row["group"]) for row in json.loads(capsys.readouterr().out)["rows"]]
    assert groups == sorted(groups)


def test_regions_with_one_instance_have_no_later_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = make_trace([Span("once", 0, 100, block) for block in range(4)]).save(tmp_path / "t.warplens")
    assert main(["stats", str(once), "--show", "modes"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("once"))
    assert row.split()[4:6] == ["200", "-"]


def test_a_comparison_across_devices_says_so(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    other = str(GOLDEN / "findings" / "serial.warplens")
    for pair, told in (((other, other), False), ((trace, other), True)):
        assert main(["diff", *pair]) == 0
        assert ("the traces are from different devices: " in capsys.readouterr().out) is told


def test_a_pipe_gets_every_column_and_whole_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "load " + "a_long_folder/" * 20 + "attn.py:57"
    made = make_trace([Span(name, 0, 10_000_000_000)]).save(tmp_path / "t.warplens")
    assert main(["stats", str(made)]) == 0
    out = capsys.readouterr().out
    assert name in out
    assert "columns not shown" not in out


@pytest.mark.parametrize("width", [60, 80])
def test_remedies_can_be_pasted_from_a_narrow_terminal(width: int) -> None:
    remedy = "pip install 'warplens[cute]'"
    checks = [DoctorCheck("nvidia-cutlass-dsl", "missing", "not installed", "CuTe DSL kernels", remedy)]
    shown = io.StringIO()
    Console(file=shown, width=width).print(_table(checks, narrow=width < 160))
    assert "nvidia-cutlass-dsl" in shown.getvalue()
    assert remedy in shown.getvalue()


def test_an_empty_trace_is_said_to_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(make_trace([]).save(tmp_path / "t.warplens"))
    for arguments in (["view", empty, "--terminal"], ["diff", empty, empty]):
        assert main(arguments) == 1
        assert "holds no spans" in capsys.readouterr().err


def test_printed_statistics_are_an_aligned_table() -> None:
    made = make_trace([Span("load", 0, 100), Span("a longer name", 100, 60_000)])
    head, *rows = repr(made.stats()).splitlines()
    assert [row[:13].strip() for row in rows] == ["a longer name", "load"]
    assert head.split()[:4] == ["region", "count", "share", "mean"]
    assert len({len(line) for line in (head, *rows)}) == 1
    assert repr(made.stats(by="sm")).startswith("sm  region")


def test_a_pipe_in_the_place_of_a_trace_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["info", str(tmp_path / "pipe")]) == 1
    assert "is a pipe or a device; write its content to a file" in capsys.readouterr().err


def test_a_current_folder_that_was_removed_is_named(trace: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {shlex.quote(str(gone))} && rmdir ../gone && exec {shlex.quote(sys.executable)} -m warplens"
    done = subprocess.run(
        ["sh", "-c", f"{command} report {shlex.quote(trace)} -o r.html"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "warplens: the current folder was removed; change to one that exists\n"


def test_a_trace_is_no_report_of_nsight_compute(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", trace, "--ncu", trace, "-o", str(tmp_path / "r.html")]) == 2
    assert "expected an Nsight Compute report that ends in .csv or .ncu-rep" in capsys.readouterr().err
