"""ptxas as nvcc calls it, on text that nvcc has not seen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warplens.errors import WarplensError
from warplens.frontends.nvcc.dryrun import Step, write
from warplens.weave.fit.module_fit import Taken

_VERBOSE = ("-v", "--verbose")
_TAKEN = re.compile(
    r"Function properties for (?P<name>\S+)\n.* (?P<spilled>\d+) bytes spill stores.*\n"
    r".*Used (?P<registers>\d+) registers"
)
_INFO = re.compile(r"^ptxas info +: (?!\(C\d+\)).*\n(?:    .*\n)*", re.M)
"""What -v adds; numbered advice, such as that wgmma is serialized, ptxas gives without it."""
_NEVER = 1 << 30


class Refused(WarplensError):
    """ptxas does not take the text."""


@dataclass(frozen=True)
class Cubin:
    """Machine code, and what ptxas said of it; no file where ptxas could not make it."""

    path: Path
    log: str


@dataclass
class Ptxas:
    """One step of nvcc's as what assembles a module: the same options for any text."""

    step: Step
    source: str
    folder: Path
    made: int = 0

    def assemble(self, text: str) -> Cubin:
        """The first text must do; of others that do not it is enough to know that they are not to be used."""
        self.made += 1
        path = self.folder / f"warplens-{self.made}.ptx"
        write(path, text)
        cubin = path.with_suffix(".cubin")
        swap = {self.source: str(path), self.step.output: str(cubin)}
        words = [swap.get(word, word) for word in self.step.words]
        done = subprocess.run([*words, "-v"], env=self.step.environment, capture_output=True, text=True)
        path.unlink()
        if done.returncode and self.made == 1:
            raise Refused(done.stderr)
        return Cubin(cubin, done.stdout + done.stderr)

    def taken(self, build: Cubin, kernels: Mapping[str, int]) -> Taken:
        found = {match["name"]: match for match in _TAKEN.finditer(build.log)}
        unknown = {"registers": _NEVER, "spilled": _NEVER}
        taken = {name: found.get(name, unknown) for name in kernels}
        return {
            name: {"registers": int(one["registers"]), "local_bytes": int(one["spilled"])}
            for name, one in taken.items()
        }

    def drop(self, build: Cubin) -> None:
        build.path.unlink(missing_ok=True)

    def said(self, build: Cubin) -> str:
        """What ptxas says of it without -v, or with, if nvcc was asked for that."""
        return build.log if set(_VERBOSE) & set(self.step.words) else _INFO.sub("", build.log)
