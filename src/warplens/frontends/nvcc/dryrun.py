"""The steps of an nvcc run, from its own `--dryrun`: their environment, and each step as a line for the shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warplens.errors import WarplensError
from warplens.record.c_header import INCLUDE

WOVEN = "WARPLENS_WOVEN=1"
VERBOSE = ("-v", "--verbose")
_SHOWN = "#$ "
_ASKED = "WARPLENS_NVCC_ASKED"
"""Holds the $NVCC that is already running: a script may call `warplens nvcc`, which must not call the script again."""
_DEFINED = re.compile(rf'\s-D\s*"?{WOVEN}"?')
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)")
FILTER = "-- Filter Dependencies --"
"""A step that nvcc runs itself and that is no command; see dependencies.py."""
_IGNORED = re.compile(r"(?:-t|--threads)(?:=?(?P<count>\d+))?|-objtemp|--objdir-as-tempdir")
"""Options that only affect the order of nvcc's steps, or where its temporary files are."""


@dataclass(frozen=True)
class Step:
    """One command that nvcc runs."""

    line: str
    environment: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        words = shlex.split(self.line)
        return [re.sub(r"\$(\w+)", lambda name: self.environment.get(name[1], ""), word) for word in words]

    @property
    def tool(self) -> str:
        return os.path.basename(self.words[0])

    @property
    def output(self) -> str:
        words = self.words
        return words[words.index("-o") + 1] if "-o" in words[:-1] else ""

    def direct(self) -> Step:
        """Return the same step with marks that the compiler sees."""
        return Step(_DEFINED.sub("", self.line), self.environment)

    def run(self) -> int:
        status = subprocess.run(["/bin/sh", "-c", self.line], env=self.environment).returncode
        return 128 - status if status < 0 else status


@dataclass(frozen=True)
class Steps:
    """All steps of a run, what nvcc printed before them, and its variables as `nvcc -v` shows them."""

    steps: list[Step] = field(default_factory=list)
    remarks: str = ""
    assignments: list[str] = field(default_factory=list)

    @property
    def compiles(self) -> bool:
        """Whether any device code is compiled."""
        return any(step.tool == "cicc" for step in self.steps)

    @property
    def filters(self) -> bool:
        """Whether a step writes a rule for make."""
        return any(step.line.startswith(FILTER) for step in self.steps)


def plan_steps(nvcc: str, arguments: Sequence[str], folder: Path) -> Steps | None:
    """Return the steps of a compilation whose temporary files go to `folder`; None if nvcc rejects the arguments."""
    base = {**os.environ, "TMPDIR": str(folder)}
    command = [nvcc, "--dryrun", *_sequential(arguments), f"-D{WOVEN}", f"-I{INCLUDE}"]
    done = subprocess.run(command, env=base, capture_output=True, text=True)
    if done.returncode or done.stdout:
        return None
    steps: list[Step] = []
    assignments: list[str] = []
    remarks: list[str] = []
    environment = dict(base)
    for line in done.stderr.splitlines(keepends=True):
        text = line.removeprefix(_SHOWN).rstrip("\n")
        assigned = _ASSIGNMENT.fullmatch(text)
        if not line.startswith(_SHOWN):
            remarks.append(line)
        elif assigned:
            environment[assigned[1]] = assigned[2]
            assignments.append(line)
        else:
            steps.append(Step(text, environment))
    return Steps(steps, "".join(remarks), assignments)


def read(path: Path) -> str:
    """Read a file as text, whatever its bytes are."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def find_nvcc(named: str | None = None) -> str:
    """Return the nvcc to use: the one named, else $NVCC, else the one on PATH or in the usual folders."""
    asked = os.environ.get("NVCC", "")
    if named is None and asked and "warplens" not in asked and os.environ.get(_ASKED) != asked:
        named = os.environ[_ASKED] = asked
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise WarplensError(f"{named}: no such program; name nvcc with --nvcc PATH or in $NVCC")
        return found
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(home) / "bin" for home in (*homes, "/usr/local/cuda") if home]
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    found = shutil.which("nvcc", path=places)
    if found is None:
        raise WarplensError(
            "no nvcc on PATH, in $CUDA_HOME or in /usr/local/cuda; install the CUDA toolkit, or name nvcc with "
            "--nvcc PATH or in $NVCC"
        )
    return found


def _sequential(arguments: Sequence[str]) -> list[str]:
    """Drop the arguments that make steps run in parallel or keep their temporary files."""
    kept, skip = [], False
    for word in arguments:
        ignored = _IGNORED.fullmatch(word)
        if skip:
            skip = False
        elif ignored:
            skip = word in ("-t", "--threads")
        else:
            kept.append(word)
    return kept
