"""Shell completion as somebody sees it who types in a terminal and presses Tab."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
TYPED = {
    "warplens findi": "warplens findings",
    "warplens stats --merg": "warplens stats --merge-variants",
    "warplens stats my_tr": "warplens stats my_trace.warplens",
}
CLEAR_LINE = b"\x15"
PATIENCE = 60.0


def documented(shell: str) -> str:
    """The line that docs/run.md tells the reader to add for a shell."""
    page = (ROOT / "docs" / "run.md").read_text().partition("## Shell completion")[2]
    row = re.search(rf"^\| {shell}[^|]*\|[^|]*\| `(.*)` \|$", page, re.MULTILINE)
    assert row is not None
    return row[1].replace("\\|", "|")


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.process, self.screen = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)

    def type(self, keys: bytes, expected: bytes) -> bytes:
        """Type, and return what the terminal shows until it shows what is expected, or nothing more comes."""
        os.write(self.screen, keys)
        shown, end = b"", time.monotonic() + PATIENCE
        while expected not in shown and time.monotonic() < end:
            if select.select([self.screen], [], [], 0.1)[0]:
                shown += os.read(self.screen, 65536)
        return shown

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.screen)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    programs, folder = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    folder.mkdir()
    (folder / "my_trace.warplens").touch()
    (programs / "warplens").write_text(f'#!/bin/sh\nexec {sys.executable} -m warplens "$@"\n')
    (programs / "warplens").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
        "TERM": "xterm",
    }
    opened = Terminal(SHELLS[shell], folder, environment)
    try:
        shown = opened.type(f"{documented(shell)}; echo set''tled\r".encode(), b"settled\r")
        assert b"settled\r" in shown, shown
        yield opened
    finally:
        opened.close()


@pytest.mark.slow  # each Tab starts Python
@pytest.mark.parametrize("terminal", SHELLS, indirect=True)
def test_tab_completes_verbs_options_and_files(terminal: Terminal) -> None:
    for typed, expected in TYPED.items():
        shown = terminal.type(CLEAR_LINE + typed.encode() + b"\t", expected.encode())
        assert expected.encode() in shown, shown
