"""Run the blocks of a page one after the other, as a reader would from the top of the repository."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import warplens as wl
from tests.support.doc_blocks import Block, Command, commands_of, matches
from tests.support.paths import GOLDEN, ROOT
from warplens.commands import main

TRACES = {
    "t.warplens": "findings/balanced.warplens",
    "matmul.warplens": "captures/triton_matmul.wlcap",
    "before.warplens": "findings/balanced.warplens",
    "after.warplens": "findings/balanced.warplens",
    "train.warplens": "torch/layer.warplens",
}
"""Traces that pages name as a reader's own, and the recordings from an H200 that stand for them."""

_SHELL = re.compile(r"[|&;<>$`*]|^\w+=")


def reader_folder(folder: Path) -> Path:
    """Fill a folder with what a reader has: the repository, and traces of their own."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    for name, source in TRACES.items():
        if source.endswith(".wlcap"):
            wl.load(GOLDEN / source).save(folder / name)
        else:
            shutil.copy(GOLDEN / source, folder / name)
    (folder / "exported.json").write_bytes(gzip.decompress((GOLDEN / "torch" / "layer.torch.json.gz").read_bytes()))
    return folder


class Reader:
    """Somebody who follows a page in a folder: files, variables and commands of one block are there for the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        programs = folder / ".bin"
        programs.mkdir()
        for name, more in (("warplens", "-m warplens "), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {more}"$@"\n')
            (programs / name).chmod(0o755)
        modules = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": modules}

    def follow(self, block: Block) -> None:
        """Do what the block says; an AssertionError says what did not work."""
        if block.file:
            (self.folder / block.file).write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, block.place, "exec"), self.names)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language in ("sh", "console"):
            for command in commands_of(block):
                self.run(command, numbers="numbers vary" not in block.notes)

    def run(self, command: Command, *, numbers: bool) -> None:
        run = self._in_process if _plain(command.line) else self.in_shell
        code, said, errors = run(command.line)
        if code != 0:
            raise AssertionError(f"`{command.line}` ended with {code}: {errors or said}")
        if command.output is not None and not matches(command.output, said, numbers=numbers):
            raise AssertionError(f"`{command.line}` printed something else than the page shows:\n{said}")

    def _in_process(self, line: str) -> tuple[int, str, str]:
        """Run warplens in this process, which saves the start of an interpreter for each of a hundred commands."""
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            code = main(shlex.split(line, comments=True)[1:])
        return code, said.getvalue(), errors.getvalue()

    def in_shell(self, line: str) -> tuple[int, str, str]:
        """Run a command in a shell; returns its exit code, output and errors."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr


def _plain(line: str) -> bool:
    return line.startswith("warplens ") and not _SHELL.search(" ".join(shlex.split(line, comments=True)))
