"""A running program in the terminal: each state is drawn, until the program ends."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.gemm_scene import gemm
from warplens.commands import main
from warplens.errors import WarplensError
from warplens.view import live_terminal
from warplens.view.live_address import find_address
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


@contextmanager
def served(answer: bytes) -> Iterator[str]:
    """The address of a server that gives every client the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError):
                        client.recv(4096)
                        client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/token/"


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.0 404 no\r\n\r\n", b"HTTP/1.0 200 ok\r\n\r\n<html>",
        b"HTTP/1.0 200 ok\r\n\r\n[]", b"HTTP/1.0 200 ok\r\n\r\n" + b"[" * 100_000,
        b'HTTP/1.0 200 ok\r\n\r\n{"age_s": "old", "ended": false}',
    ],
)  # fmt: skip
def test_another_program_at_the_address_of_one_that_was_killed_is_one_error(
    answer: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(answer) as url:
        known = {"url": url, "pid": os.getpid(), "program": "p", "rank": 0}
        (tmp_path / "t.warplens.live").write_text(json.dumps(known))
        assert main(["view", "--live", "--terminal", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "belongs to another program" in said or "does not answer" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 1 << 70}, {"pid": -1}, {"pid": 0}, {"pid": "x"}, {"url": "http://127.0.0.1:80@example.com/t/"},
        {"url": "http://127.0.0.1:999999/t/"}, {"url": "http://[::1/"}, {"url": "https://127.0.0.1:80/t/"},
    ],
)  # fmt: skip
def test_a_file_that_names_no_program_of_this_machine_is_passed_over(change: dict[str, Any], tmp_path: Path) -> None:
    known = {"url": "http://127.0.0.1:80/t/", "pid": os.getpid(), "program": "p", "rank": 0}
    (tmp_path / "t.warplens.live").write_text(json.dumps(known))
    assert find_address(tmp_path).url == known["url"]
    (tmp_path / "t.warplens.live").write_text(json.dumps(known | change))
    with pytest.raises(WarplensError, match="no program shows itself live"):
        find_address(tmp_path)


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
    text = page("live", "<script>alert(1)</script>").decode()
    assert "<script>alert(1)" not in text
    assert "connect-src &#39;self&#39;" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("words", "said"), [([], "name the TRACE"), (["--live", "--sm", "3"], "not supported with --live")]
)
def test_wrong_uses_of_view_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", *words]) == 2
    assert said in capsys.readouterr().err
