"""`warplens run --ncu`: run the program again under Nsight Compute, without marks, to measure the original kernels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from warplens.files import check_writable
from warplens.runner.companion_base import Companion, CompanionReport
from warplens.runner.nsight_compute import find_ncu, run_ncu


class NcuCompanion(Companion):
    @property
    def report(self) -> Path:
        return self.path.with_suffix(".ncu-rep")

    def check(self) -> None:
        find_ncu()
        check_writable(self.report, force=self.force)

    def after(self) -> CompanionReport:
        options = self.profile.options
        kernels = run_ncu(
            self.program.command, self.report, kernels=options.kernels, launches=options.launches, force=True
        )
        return CompanionReport(
            files=[self.report],
            ncu_kernels=kernels,
            next=[f"findings {{trace}} --ncu {self.report}"],
            document={"report": str(self.report), "kernels": [asdict(one) | {"bound": one.bound} for one in kernels]},
        )
