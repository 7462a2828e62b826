"""`warplens run --ncu`: the same program under Nsight Compute, unmarked, so that its counters are the kernel's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from warplens.files import check_writable
from warplens.runner import companion
from warplens.runner.nsight_compute import find_ncu, run_ncu


class Companion(companion.Companion):
    @property
    def report(self) -> Path:
        return self.path.with_suffix(".ncu-rep")

    def check(self) -> None:
        find_ncu()
        check_writable(self.report, force=self.force)

    def after(self) -> companion.Found:
        from warplens.commands.shared.analysis_tables import ncu_table

        options = self.profile.options
        kernels = run_ncu(
            self.program.command, self.report, kernels=options.kernels, launches=options.launches, force=True
        )
        return companion.Found(
            files=[self.report],
            tables=[ncu_table(kernels)],
            next=[f"stats {{trace}} --findings --ncu {self.report}"],
            document={"report": str(self.report), "kernels": [asdict(one) | {"bound": one.bound} for one in kernels]},
        )
