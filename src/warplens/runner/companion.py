"""What may go along with a run: another tool beside the program, or after it on the same program.

A companion is one module with one subclass, named in COMPANIONS; `warplens run` gives it an option of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from warplens.profiling.profile import Profile
from warplens.runner.program import Program

COMPANIONS = {
    "torch": ("warplens.runner.torch_profiler", "PyTorch's profiler beside: operators, memory, one merged .pftrace."),
    "ncu": ("warplens.runner.ncu", "Run the program once more under Nsight Compute, unmarked, and show what it says."),
    "nsys": ("warplens.runner.nsys", "Run the program once more under Nsight Systems, unmarked."),
}
"""By option: the module with the class `Companion`, and the option's help."""


@dataclass(frozen=True)
class Found:
    """What a companion brings to the run's report: rich tables, and verbs to go on with, `{trace}` being the trace."""

    files: Sequence[Path] = ()
    tables: Sequence[Any] = ()
    next: Sequence[str] = ()
    document: Mapping[str, Any] = field(default_factory=dict)


class Companion:
    """The defaults do nothing; `path` is the trace's file, after which a companion's own files are called."""

    def __init__(self, program: Program, profile: Profile, path: Path, *, force: bool) -> None:
        self.program, self.profile, self.path, self.force = program, profile, path, force

    def check(self) -> None:
        """Refuse before anything runs: a missing tool, a file that would be overwritten."""

    def around(self) -> AbstractContextManager[Any]:
        """Entered before the program starts and left when it has ended, inside the profile."""
        return nullcontext()

    def after(self) -> Found:
        """Called when the trace is written."""
        return Found()


def companion(name: str, program: Program, profile: Profile, path: Path, *, force: bool) -> Companion:
    made: Companion = import_module(COMPANIONS[name][0]).Companion(program, profile, path, force=force)
    made.check()
    return made
