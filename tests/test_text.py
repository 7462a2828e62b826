"""Names are data: what they contain never steers a terminal, a spreadsheet or the reading of local files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.synthetic_capture import make_capture
from tests.support.trace_processor import query
from warplens.commands import main
from warplens.errors import CaptureError, UsageError, WarplensError
from warplens.record.capture import Device, write_capture
from warplens.text import printable, spreadsheet_text

EVIL = "\x1b]52;c;aGk=\x07\x9b2J\x7f\u202eabc\u2066\u200b\ufeff[bold]"
UNSAFE = [*map(chr, [*range(9), *range(11, 32), *range(127, 160), *range(0x200B, 0x2010), *range(0x2066, 0x206A)])]
UNSAFE += ["\u202a", "\u202e", "\u2060", "\ufeff", "\u061c", "\u2028", "\ud800", "\udfff"]


def evil_trace() -> wl.Trace:
    trace = make_trace([Span(EVIL, 0, 10, kernel=EVIL), Span("b", 12, 4, kernel=EVIL)])
    device = {"0": {"name": EVIL, "sm_count": 4}}
    return wl.Trace(trace.spans, replace(trace.meta, devices=device, notes={EVIL: (EVIL,)}))


@pytest.mark.parametrize("letter", UNSAFE)
def test_every_unsafe_character_is_escaped(letter: str) -> None:
    shown = printable(f"a{letter}b")
    assert letter not in shown
    assert shown.isprintable()
    assert shown.startswith("a\\")


@pytest.mark.parametrize("text", ["plain", "µs × 3 → ²", "中文 ελ", "a\tb\nc", "`load`", "é"])
def test_other_text_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "verb",
    [
        ["info"], ["stats"], ["stats", "--tree"], ["diagnose"], ["view", "--terminal"],
        ["info", "--json"], ["stats", "--json"],
    ],
)  # fmt: skip
def test_no_verb_prints_a_raw_name(verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = evil_trace().save(tmp_path / "t.warplens")
    main([verb[0], str(path), *verb[1:]])
    said = "".join(capsys.readouterr())
    assert "52;c;aGk=" in said, "the name is shown"
    assert not [letter for letter in UNSAFE if letter in said]


def test_errors_and_file_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = evil_trace().save(tmp_path / "t\x1b]0;x\x07.warplens")
    assert main(["stats", str(path), "--by", "\x1b[2J"]) != 0
    assert main(["info", str(tmp_path / "none\x1b[2J")]) == 1
    assert main(["export", str(path), "-o", str(tmp_path / "o\x1b[31m.csv")]) == 0
    assert "\x1b" not in "".join(capsys.readouterr())
    for error in (WarplensError(EVIL), UsageError(EVIL), CaptureError(EVIL, "a", EVIL, "b")):
        assert printable(str(error)) == str(error)
    trace = evil_trace()
    assert printable(repr(trace)) == repr(trace)
    assert printable(repr(trace.stats())) == repr(trace.stats())


def test_exports_stay_valid(tmp_path: Path) -> None:
    trace = evil_trace()
    document = json.loads(trace.export(tmp_path / "t.json").read_text())
    assert EVIL in {event["name"] for event in document["traceEvents"]}
    page = trace.export(tmp_path / "t.html").read_text()
    assert "<bold>" not in page
    names = {row["name"] for row in query(trace.export(tmp_path / "t.pftrace"), "select name from slice")}
    assert "b" in names
    assert EVIL in names


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_a_csv_cell_is_never_a_formula(name: str, tmp_path: Path) -> None:
    path = make_trace([Span(name, 0, 10), Span("plain", 20, 1)]).export(tmp_path / "t.csv")
    with open(path, newline="") as file:
        regions = [row["region"] for row in csv.DictReader(file)]
    assert regions == [f"'{name}", "plain"]
    assert spreadsheet_text("a=b") == "a=b"


def test_a_report_embeds_only_files_below_the_working_directory_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in (work, elsewhere):
        folder.mkdir()
        (folder / f"{folder.name}.py").write_text(f"secret_of_{folder.name} = 1\n" * 5)
    (work / "link.py").symlink_to(elsewhere / "elsewhere.py")
    trace = make_trace([Span(name, at * 20, 10) for at, name in enumerate("abcd")])
    places = [work / "work.py", elsewhere / "elsewhere.py", Path("link.py"), Path("../elsewhere/elsewhere.py")]
    locations = {name: f"{place}:2" for name, place in zip("abcd", places, strict=True)}
    path = wl.Trace(trace.spans, replace(trace.meta, locations=locations)).save(elsewhere / "t.warplens")
    monkeypatch.chdir(work)
    assert main(["report", str(path), "-o", "r.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"] == [str(work / "work.py")]
    page = Path("r.html").read_text()
    assert "secret_of_work" in page
    assert "secret_of_elsewhere" not in page
    assert "this report holds lines of" in page
    assert main(["report", str(path), "-o", "s.html", "--source", str(elsewhere)]) == 0
    assert "secret_of_elsewhere" in Path("s.html").read_text()
    assert str(elsewhere / "elsewhere.py") in capsys.readouterr().err


def test_a_name_with_line_breaks_cannot_look_like_other_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\nwarplens: no findings\r\tx"
    trace = make_trace([Span(name, 0, 100, kernel=f"k{name}"), Span("wait", 2, 80, kernel=f"k{name}")])
    device = {"0": {"name": name, "sm_count": 4}}
    path = wl.Trace(trace.spans, replace(trace.meta, devices=device)).save(tmp_path / "t.warplens")
    shown = r"a\nwarplens: no findings\r" + "\tx"
    loaded = wl.load(path)
    assert loaded.regions == [shown, "wait"]
    assert loaded.kernels == [f"k{shown}"]
    for arguments in (["info"], ["stats"], ["stats", "--tree"], ["findings"], ["view", "--terminal"]):
        assert main([arguments[0], str(path), *arguments[1:]]) == 0
        out = capsys.readouterr().out
        assert not any(line.strip().startswith("warplens: no findings") for line in out.splitlines())
    capture = replace(make_capture(8, blocks=1, warps=1, sms=1), device=Device(name))
    launch = replace(capture.launches[0], kernel=name, regions={1: name, 2: "b", 3: "c", 4: "d"})
    read = wl.load(write_capture(replace(capture, launches=[launch]), tmp_path / "c.wlcap"))
    assert (read.kernels, read.regions[0]) == ([shown], shown)


def test_an_error_about_a_file_whose_name_has_a_line_break_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(tmp_path / "a\nb.warplens")]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert r"a\nb.warplens" in said
