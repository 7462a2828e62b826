"""Run ptxas as nvcc runs it, on text that nvcc has not seen."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from warplens.errors import WarplensError
from warplens.frontends.nvcc.dryrun import VERBOSE, Step, write
from warplens.weave.fit.ptxas_output import read_kernels, without_verbose
from warplens.weave.fit.resources import UNUSABLE, Resources


class PtxasRejected(WarplensError):
    """ptxas rejects the woven text."""


@dataclass(frozen=True)
class Cubin:
    """Machine code, and what ptxas printed; there is no file if ptxas failed."""

    path: Path
    log: str


@dataclass
class NvccPtxas:
    """The ptxas step of one nvcc run, with the same options for any text."""

    step: Step
    source: str
    folder: Path
    runs: int = 0

    def assemble(self, text: str) -> Cubin:
        """Assemble `text`. The first text must assemble; of a later one it is enough to know that it is unusable."""
        self.runs += 1
        path = self.folder / f"warplens-{self.runs}.ptx"
        write(path, text)
        cubin = path.with_suffix(".cubin")
        swap = {self.source: str(path), self.step.output: str(cubin)}
        words = [swap.get(word, word) for word in self.step.words]
        done = subprocess.run([*words, "-v"], env=self.step.environment, capture_output=True, text=True)
        path.unlink()
        if done.returncode and self.runs == 1:
            raise PtxasRejected(done.stderr)
        return Cubin(cubin, done.stdout + done.stderr)

    def resources(self, build: Cubin, kernels: Collection[str]) -> Mapping[str, Resources]:
        found = read_kernels(build.log)
        return {name: found.get(name, UNUSABLE) for name in kernels}

    def discard(self, build: Cubin) -> None:
        build.path.unlink(missing_ok=True)

    def printed(self, build: Cubin) -> str:
        """Return what ptxas would have printed for nvcc: its verbose lines only if nvcc was asked for them."""
        return build.log if set(VERBOSE) & set(self.step.words) else without_verbose(build.log)
