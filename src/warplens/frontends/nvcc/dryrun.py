"""What nvcc would do, from its own `--dryrun`: the environment of its steps, and the steps as lines for a shell."""

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
_SHOWN = "#$ "
_ASKED = "WARPLENS_NVCC_ASKED"
"""The $NVCC that is at work already: a script of that name may call `warplens nvcc`, which must not call it again."""
_DEFINED = re.compile(rf'\s-D\s*"?{WOVEN}"?')
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)")
FILTER = "-- Filter Dependencies --"
"""A step of nvcc's own, which is no command; see dependencies.py."""
_IGNORED = re.compile(r"(?:-t|--threads)(?:=?(?P<count>\d+))?|-objtemp|--objdir-as-tempdir")
"""Options that only say in what order nvcc works, or where it keeps what it deletes again."""


@dataclass(frozen=True)
class Step:
    """One command of nvcc's."""

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
        """The same, with marks that the compiler sees."""
        return Step(_DEFINED.sub("", self.line), self.environment)

    def run(self) -> int:
        status = subprocess.run(["/bin/sh", "-c", self.line], env=self.environment).returncode
        return 128 - status if status < 0 else status


@dataclass(frozen=True)
class Steps:
    """All of them, what nvcc had to say before, and the lines as `nvcc -v` shows them."""

    steps: list[Step] = field(default_factory=list)
    remarks: str = ""
    assignments: list[str] = field(default_factory=list)

    @property
    def compiles(self) -> bool:
        """Whether device code is compiled at all."""
        return any(step.tool == "cicc" for step in self.steps)

    @property
    def filters(self) -> bool:
        """Whether a rule for make is written on the way."""
        return any(step.line.startswith(FILTER) for step in self.steps)


def planned(nvcc: str, arguments: Sequence[str], folder: Path) -> Steps | None:
    """The steps of a compilation whose temporary files go to `folder`; None where nvcc refuses the arguments."""
    base = {**os.environ, "TMPDIR": str(folder)}
    command = [nvcc, "--dryrun", *_in_order(arguments), f"-D{WOVEN}", f"-I{INCLUDE}"]
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
    """A file as text, whatever its bytes are."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def find_nvcc(named: str | None = None) -> str:
    """The nvcc to use: the one that is named, else $NVCC, else the one on PATH or in the usual folders."""
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


def _in_order(arguments: Sequence[str]) -> list[str]:
    """The arguments without what would make the steps overlap or their files stay."""
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
