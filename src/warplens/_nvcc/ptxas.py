"""ptxas as nvcc calls it, on text that nvcc has not seen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warplens._nvcc.plan import Step
from warplens.errors import WarplensError
from warplens.weave.fitted import Taken

_VERBOSE = ("-v", "--verbose")
_TAKEN = re.compile(
    r"Function properties for (?P<name>\S+)\n.*?(?P<spilled>\d+) bytes spill stores.*?"
    r"Used (?P<registers>\d+) registers",
    re.S,
)
_INFO = re.compile(r"^ptxas info .*\n(?:    .*\n)*", re.M)


class Refused(WarplensError):
    """ptxas does not take the text."""


@dataclass(frozen=True)
class Cubin:
    """Machine code, and what ptxas said of it."""

    path: Path
    log: str


@dataclass
class Ptxas:
    """One step of nvcc's as what assembles a module: the same options for any text."""

    step: Step
    source: str
    folder: Path
    made: int = field(default=0)

    def assemble(self, text: str) -> Cubin:
        self.made += 1
        path = self.folder / f"warplens-{self.made}.ptx"
        path.write_text(text)
        cubin = path.with_suffix(".cubin")
        swap = {self.source: str(path), self.step.output: str(cubin)}
        words = [swap.get(word, word) for word in self.step.words]
        done = subprocess.run([*words, "-v"], env=self.step.environment, capture_output=True, text=True)
        path.unlink()
        if done.returncode:
            raise Refused(done.stderr)
        return Cubin(cubin, done.stdout + done.stderr)

    def taken(self, build: Cubin, kernels: Mapping[str, int]) -> Taken:
        found = {match["name"]: match for match in _TAKEN.finditer(build.log)}
        return {
            name: {"registers": int(found[name]["registers"]), "local_bytes": int(found[name]["spilled"])}
            for name in kernels
            if name in found
        }

    def drop(self, build: Cubin) -> None:
        build.path.unlink()

    def said(self, build: Cubin) -> str:
        """What ptxas says of it without -v, or with, if nvcc was asked for that."""
        return build.log if set(_VERBOSE) & set(self.step.words) else _INFO.sub("", build.log)
