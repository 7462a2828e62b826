"""A running program in the terminal: each state is drawn, until the program ends."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from tests.support.gemm_scene import gemm
from warplens.commands import main
from warplens.view import live_terminal
from warplens.view.live_page import LiveDocuments, page
from warplens.view.live_state import LiveKernel, LiveState


def document(number: int, **more: Any) -> Any:
    kernels = [LiveKernel("gemm", 12, 10, 3.5)]
    state = LiveState(number=number, program="train.py", kernels=kernels, trace=gemm(tiles=8, steps=3, sms=6), **more)
    return {"age_s": 0.25, **json.loads(LiveDocuments().of(state, columns=60))}


def test_states_are_drawn_until_the_program_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [document(1), document(2), document(3, ended=True)]
    asked: list[int] = []

    def fetch(url: str, after: int, columns: int) -> Any:
        asked.append(after)
        return states[len(asked) - 1]

    monkeypatch.setattr(live_terminal, "fetch_state", fetch)
    out = io.StringIO()
    live_terminal.follow("http://127.0.0.1:1/x/", Console(file=out, force_terminal=True, width=100, height=60))
    assert asked == [0, 1, 2]
    drawn = out.getvalue()
    assert "the program has ended" in drawn
    for text in ("train.py", "gemm", "3.50 s", "SM 3", "one cell is"):
        assert text in drawn


def test_a_program_that_is_gone_ends_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(live_terminal, "fetch_state", gone)
    out = io.StringIO()
    live_terminal.follow("http://127.0.0.1:1/x/", Console(file=out, force_terminal=True, width=80))
    assert "the program has ended" in out.getvalue()


def test_ctrl_c_ends_the_view_and_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(live_terminal, "fetch_state", interrupted)
    out = io.StringIO()
    live_terminal.follow("http://127.0.0.1:1/x/", Console(file=out, force_terminal=True, width=80))
    assert "ended" not in out.getvalue()


def test_a_region_keeps_its_colour_while_others_come_and_go() -> None:
    documents = LiveDocuments()
    whole = gemm(tiles=8, steps=3, sms=2)
    first = json.loads(documents.of(LiveState(trace=whole)))
    second = json.loads(documents.of(LiveState(trace=whole.select(region=whole.regions[-1:]))))
    assert [region["colour"] for region in second["regions"]] == [region["colour"] for region in first["regions"]]
    assert {row["code"] for row in second["statistics"]} == {len(whole.regions) - 1}


def test_the_page_loads_nothing_but_its_states() -> None:
    text = page("<script>alert(1)</script>")
    assert "<script>alert(1)" not in text
    assert "connect-src &#39;self&#39;" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("words", "said"), [([], "name the TRACE"), (["--live", "--sm", "3"], "not supported with --live")]
)
def test_wrong_uses_of_view_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", *words]) == 2
    assert said in capsys.readouterr().err
