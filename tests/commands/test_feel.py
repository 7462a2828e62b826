"""What a new user meets in the first hour: mistakes are named, tables fit, and nothing is printed for show."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from warplens.commands import main
from warplens.commands.doctor import DoctorCheck, _table
from warplens.commands.shared.console import print_hanging, table
from warplens.trace.schema import LaunchInfo, Meta

MISSING = "no.warplens"
"""Options are checked before a trace is read."""
CAPTURE = str(ROOT / "tests" / "golden" / "captures" / "triton_matmul.wlcap")


def terminal(width: int) -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, width=width, force_terminal=True, no_color=True, highlight=False), shown


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([CAPTURE], 2, f"it is a file: try `warplens stats {CAPTURE}`"),
        (["findings", CAPTURE, "--kernel", "matmull"], 2, "no such kernel in this trace (did you mean 'matmul'?)"),
        (["findings", CAPTURE, "--kernel", "x"], 2, "no such kernel in this trace (known: matmul)"),
        (["stats", str(ROOT / "README.md")], 1, "is not a trace (it does not end as a Parquet file does); name a"),
        (["view", CAPTURE, "--terminal", "--launch", "7"], 2, "--launch 7: expected `all` or the number of a launch"),
        (["stats", MISSING, "--by", "wrap"], 2, "cannot group by 'wrap' (did you mean 'warp'?)"),
        (["stats", MISSING, "--sort", "p98"], 2, "cannot sort by 'p98' (did you mean 'p99'?)"),
        (["view", CAPTURE, "--launch", "1"], 2, "--width and --rows need --terminal"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(
    arguments: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert expected in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sensitivity", "`warplens sensitivity -o FILE` makes one"),
        ("lateness", "needs a trace of several ranks"),
        ("skew", "needs a trace of several ranks"),
        ("rank-path", "needs a trace of several ranks"),
    ],
)
def test_an_analysis_without_an_answer_says_what_it_needs(
    name: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", CAPTURE, "--show", name]) == 0
    assert expected in capsys.readouterr().out


def test_the_terminal_draws_the_longest_launch_and_the_tables_agree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches of 6 µs half a millisecond apart are two columns of letters otherwise."""
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["view", CAPTURE, "--terminal"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("launch 1 (matmul), the longest of 2; --launch N draws another")
    row = next(line for line in lines if line.startswith("  SM 0"))
    assert 40 < len(row.rstrip()) <= 70
    monkeypatch.delenv("COLUMNS")
    assert main(["stats", CAPTURE]) == 0
    p50 = next(line.split()[8] for line in capsys.readouterr().out.splitlines() if line.startswith("load"))
    assert main(["view", CAPTURE, "--terminal", "--launch", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "--launch" not in lines[0]
    drawn = next(line.split()[-3] for line in lines if line.startswith("load"))
    assert drawn == p50 == "31"


def test_a_trace_of_one_launch_needs_no_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = Meta(launches=[LaunchInfo(0, "kernel", end_ns=100)])
    file = str(make_trace([Span("load", 0, 100)], meta=meta).save(tmp_path / "t.warplens"))
    assert main(["view", file, "--terminal"]) == 0
    assert "--launch" not in capsys.readouterr().out


def test_titles_have_no_trailing_spaces_and_wrap_at_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", CAPTURE]) == 0
    title = capsys.readouterr().out.splitlines()[0]
    assert title == "durations in cycles; shares of 741 µs of warp time"
    console, shown = terminal(60)
    console.print(table("a title that is wider than the table below it", [("name", str)], ["load"]))
    assert "a title that is wider than the table below it" in shown.getvalue()


def test_paragraphs_stay_readable_in_a_narrow_terminal() -> None:
    console, shown = terminal(60)
    print_hanging(console, "undecided (too little in flight): ", "word " * 14 + "and 60.9 % of it")
    lines = shown.getvalue().splitlines()
    assert lines[0].startswith("undecided (too little in flight): word")
    assert all(line.startswith("   ") and line[3] != " " for line in lines[1:])
    for width in range(40, 80):
        console, shown = terminal(width)
        print_hanging(
            console, "   evidence: ", "sm time idle 90.5 %; kernel 6.00 µs (5.89 µs to 6.10 µs over 2 launches)"
        )
        assert not any(line.lstrip().startswith(("%", "µs")) for line in shown.getvalue().splitlines()), width


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_doctor_says_in_a_narrow_terminal_what_is_missing_and_why(width: int) -> None:
    checks = [
        DoctorCheck("python", "ok", "3.12.1", "everything"),
        DoctorCheck("triton", "ok", "3.6.0", "Triton kernels", woven="no ptxas"),
        DoctorCheck("torch", "missing", "not installed", "kernels of torch.compile", "pip install torch"),
    ]
    console, shown = terminal(width)
    console.print(_table(checks, narrow=True))
    text = shown.getvalue()
    for expected in ("3.12.1", "not woven: no ptxas", "not installed; for kernels of", "pip install torch"):
        assert expected in text
    assert "can be woven" not in text


def test_columns_that_are_empty_are_left_out() -> None:
    shown = io.StringIO()
    Console(file=shown, width=200).print(_table([DoctorCheck("python", "ok", "3.12.1", "everything")], narrow=False))
    assert shown.getvalue().split()[:3] == ["what", "found", "used"]
