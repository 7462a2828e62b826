"""Source lines are checked by a hash of their file: a file that has changed since is said to have, and is not shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.findings import findings
from warplens.analyse.line_times import line_times
from warplens.profiling.source_hashes import hash_sources
from warplens.trace.model import Trace
from warplens.view.html import ReportOptions, report
from warplens.view.source_listing import listing


def recorded(folder: Path) -> Trace:
    """A kernel whose only finding names `softmax` at line 2 of k.py."""
    (folder / "k.py").write_text("first\nsecond line\nthird\n")
    spans = [
        Span("softmax", 0, 400_000 if block == 5 else 100_000, block=block, sm=block) for block in range(64)
    ]  # one block is late
    made = make_trace(spans)
    meta = replace(made.meta, locations={"softmax": "k.py:2", "gone": "away.py:1", "odd": "no location"})
    return Trace(made.spans, replace(meta, source_hashes=hash_sources(meta)))


def test_the_files_that_are_there_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(recorded(tmp_path).meta.source_hashes) == ["k.py"]


def test_a_changed_file_is_said_and_not_shown_as_if_it_were_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = recorded(tmp_path)
    assert findings(trace)[0].line == "k.py:2"
    (file,) = listing(line_times(trace), [tmp_path], trace.meta.source_hashes)
    assert (file.found, file.changed) == (True, False)
    assert "second line" in report([trace], ReportOptions(sources=[tmp_path]))
    (tmp_path / "k.py").write_text("new\nanother line\nthird\n")
    assert findings(trace)[0].line == "k.py:2 (the file has changed since)"
    (file,) = listing(line_times(trace), [tmp_path], trace.meta.source_hashes)
    assert (file.found, file.changed) == (False, True)
    text = report([trace], ReportOptions(sources=[tmp_path]))
    assert "another line" not in text
    assert "changed since it was recorded" in text


def test_hashes_survive_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from warplens.decode.trace_loader import load

    trace = recorded(tmp_path)
    trace.save(tmp_path / "t.warplens")
    assert load(tmp_path / "t.warplens").meta.source_hashes == trace.meta.source_hashes
