"""`warplens run --nsys`: run the program again under Nsight Systems, without marks, for a system-wide timeline."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from warplens.errors import WarplensError
from warplens.files import check_writable
from warplens.runner.companion_base import Companion, CompanionReport


class NsysCompanion(Companion):
    @property
    def report(self) -> Path:
        return self.path.with_suffix(".nsys-rep")

    def check(self) -> None:
        if shutil.which("nsys") is None:
            raise WarplensError(
                "nsys is not on PATH: it comes with the CUDA toolkit (bin/nsys) and as Nsight Systems from "
                "developer.nvidia.com/nsight-systems; install it, or run without --nsys"
            )
        check_writable(self.report, force=self.force)

    def after(self) -> CompanionReport:
        options = ["--trace", "cuda,nvtx,osrt", "--force-overwrite", "true", "--output", str(self.report)]
        command = ["nsys", "profile", *options, *self.program.command]
        done = subprocess.run(command, env={**os.environ, "WARPLENS": "0"}, check=False)
        if not self.report.exists():
            raise WarplensError(f"nsys exited with code {done.returncode} and wrote no report; check `nsys status -e`")
        return CompanionReport(files=[self.report], document={"report": str(self.report)})
