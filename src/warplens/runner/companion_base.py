"""Companion tools of `warplens run`: profilers that run alongside the program, or run the program again afterwards.

A companion is one module with one subclass of `Companion`, listed in COMPANIONS. `warplens run` has an option of the
same name for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from warplens.analyse.ncu import NcuKernel
from warplens.analyse.region_counters import AttributedPages
from warplens.analyse.torch.operators import TorchSummary
from warplens.profiling.profile import Profile
from warplens.runner.program import TargetProgram

COMPANIONS = {
    "torch": (
        "companion_torch.TorchCompanion",
        "Also run PyTorch's profiler: show its operators and memory, and write one merged .pftrace file.",
    ),
    "ncu": (
        "companion_ncu.NcuCompanion",
        "Run the program again under Nsight Compute: without marks for the counters of each kernel, with marks for the "
        "stalls and counters of each region.",
    ),
    "nsys": (
        "companion_nsys.NsysCompanion",
        "Run the program a second time under Nsight Systems, without marks, and keep its report.",
    ),
}
"""For each option: the class as MODULE.NAME within this package, and the option's help."""


@dataclass(frozen=True)
class CompanionReport:
    """What a companion adds to the run's summary.

    `ncu_kernels`, `counters` and `torch_summary` are printed as tables, `lines` after them. `next` are verbs to
    suggest, in which `{trace}` stands for the trace file. `document` goes into the JSON output.
    """

    files: Sequence[Path] = ()
    ncu_kernels: Sequence[NcuKernel] = ()
    counters: AttributedPages | None = None
    torch_summary: TorchSummary | None = None
    lines: Sequence[str] = ()
    next: Sequence[str] = ()
    document: Mapping[str, Any] = field(default_factory=dict)


class Companion:
    """Base class whose methods do nothing. A companion names its own files after `path`, the trace file."""

    def __init__(self, program: TargetProgram, profile: Profile, path: Path, *, force: bool) -> None:
        self.program, self.profile, self.path, self.force = program, profile, path, force

    def check(self) -> None:
        """Raise an error before anything runs if the tool is missing or a file would be overwritten."""

    def around(self) -> AbstractContextManager[Any]:
        """Return the context in which the program runs, inside the profile."""
        return nullcontext()

    def after(self) -> CompanionReport:
        """Report what the tool measured; called once the trace is written."""
        return CompanionReport()


def open_companion(name: str, program: TargetProgram, profile: Profile, path: Path, *, force: bool) -> Companion:
    """Create the companion of this option and check that it can run."""
    module, _, kind = COMPANIONS[name][0].partition(".")
    made: Companion = getattr(import_module(f"warplens.runner.{module}"), kind)(program, profile, path, force=force)
    made.check()
    return made
