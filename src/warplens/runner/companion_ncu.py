"""`warplens run --ncu`: run the program again under Nsight Compute, without marks, to measure the original kernels.

A third run measures the kernels with marks, a few counters only, so that each region has its stalls and counters.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from warplens.analyse.region_counters import AttributedPages, region_counters
from warplens.errors import WarplensError
from warplens.files import check_writable
from warplens.options import Options
from warplens.runner.companion_base import Companion, CompanionReport
from warplens.runner.nsight_compute import find_ncu, run_ncu, run_ncu_marked
from warplens.runner.program import TargetProgram

_LAUNCHES = 8
"""Launches to measure of each kernel in the run with marks; only the first of a variant has them."""


class NcuCompanion(Companion):
    @property
    def report(self) -> Path:
        return self.path.with_suffix(".ncu-rep")

    @property
    def marked_report(self) -> Path:
        return self.path.with_suffix(".marked.ncu-rep")

    def check(self) -> None:
        find_ncu()
        for path in (self.report, self.marked_report):
            check_writable(path, force=self.force)

    def after(self) -> CompanionReport:
        options = self.profile.options
        kernels = run_ncu(self.program.command, self.report, kernels=options.kernels, launches=options.launches)
        counters, problem = self._regions()
        return CompanionReport(
            files=[path for path in (self.report, self.marked_report) if path.exists()],
            ncu_kernels=kernels,
            counters=counters,
            lines=[problem] if problem else [],
            next=[f"findings {{trace}} --ncu {self.report}", f"stats {{trace}} --ncu {self.marked_report}"],
            document={
                "report": str(self.report),
                "kernels": [asdict(one) | {"bound": one.bound} for one in kernels],
                "marked_report": str(self.marked_report),
                "regions": counters.to_json() if counters else None,
                "problem": problem,
            },
        )

    def _regions(self) -> tuple[AttributedPages | None, str]:
        """The counters of each region from a run with marks, or why there are none."""
        names = sorted({re.escape(info.kernel) for info in self.profile.trace.meta.launches})
        if not names:
            return None, ""
        with tempfile.TemporaryDirectory(prefix="warplens-ncu-") as folder:
            command = marked_command(self.program, self.profile.options, Path(folder) / "marked.warplens")
            try:
                chosen = f"^({'|'.join(names)})"
                pages = run_ncu_marked(command, self.marked_report, kernels=chosen, launches=_LAUNCHES * len(names))
            except WarplensError as error:
                return None, f"regions have no counters: {error}"
        return region_counters(self.profile.trace, pages), ""


def marked_command(program: TargetProgram, options: Options, trace: Path) -> list[str]:
    """The command that records a program once more with the same marks, one launch of each variant."""
    words = [sys.executable, "-m", "warplens", "run", "-o", str(trace), "--launches", "1", "--skip", "0"]
    if options.auto:
        words.append("--auto" if options.auto is True else f"--auto={_listed(options.auto)}")
    ranges = options.regions or ()
    words += [word for one in (ranges.items() if isinstance(ranges, Mapping) else ranges) for word in _region(one)]
    for name, value in (("kernels", options.kernels), ("override", options.override)):
        words += [f"--{name}", str(value)] if value is not None else []
    for name in ("full", "clock", "granularity", "most_marks", "least_occupancy"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return [*words, *(["-m"] if program.module else []), program.target, *program.arguments]


def _listed(classes: str | Iterable[str]) -> str:
    return classes if isinstance(classes, str) else ",".join(classes)


def _region(one: str | tuple[str, str]) -> list[str]:
    return ["--region", one if isinstance(one, str) else "=".join(one)]
