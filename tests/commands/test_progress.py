"""What takes long shows how far it is, how fast it goes and how long it still takes."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from tests.support.synthetic_capture import make_capture
from warplens.commands.shared import progress
from warplens.commands.shared.progress import progress_bar
from warplens.decode import decode
from warplens.trace import model
from warplens.trace.pass_progress import listening, passed


def test_every_pass_tells_how_many_rows_it_went_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "BLOCK_ROWS", 500)
    trace = decode(make_capture(4000, blocks=8, warps=2))
    told: list[tuple[int, int]] = []
    with listening(lambda rows, total: told.append((rows, total))):
        trace.stats()
    assert [rows for rows, _ in told] == sorted({rows for rows, _ in told})
    assert len(told) > 4
    assert told[-1] == (len(trace), len(trace))
    passed(1, 2)
    assert told[-1] == (len(trace), len(trace)), "nobody listens any more"


def test_the_bar_has_a_rate_and_a_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 0)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with progress_bar(console, "reading [x].warplens"):
        deadline = time.monotonic() + 60
        while not out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        for rows in (1_000_000, 5_000_000, 3_000_000):
            passed(rows, 10_000_000)
    shown = out.getvalue()
    assert "reading [x].warplens" in shown
    assert "M rows/s" in shown
    assert ":" in shown.rsplit("rows/s", 1)[1], "the remaining time"


def test_work_that_ends_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 600)
    out = io.StringIO()
    with progress_bar(Console(file=out, force_terminal=True), "reading t.warplens"):
        passed(1, 2)
    assert out.getvalue() == ""
