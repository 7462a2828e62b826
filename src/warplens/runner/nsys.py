"""`warplens run --nsys`: the same program under Nsight Systems, unmarked, for what surrounds the kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from warplens.errors import WarplensError
from warplens.files import check_writable
from warplens.runner import companion


class Companion(companion.Companion):
    @property
    def report(self) -> Path:
        return self.path.with_suffix(".nsys-rep")

    def check(self) -> None:
        if shutil.which("nsys") is None:
            raise WarplensError(
                "nsys is not on PATH: it comes with the CUDA toolkit (bin/nsys) and as Nsight Systems from "
                "developer.nvidia.com/nsight-systems; leave --nsys out to go without"
            )
        check_writable(self.report, force=self.force)

    def after(self) -> companion.Found:
        options = ["--trace", "cuda,nvtx,osrt", "--force-overwrite", "true", "--output", str(self.report)]
        command = ["nsys", "profile", *options, *self.program.command]
        done = subprocess.run(command, env={**os.environ, "WARPLENS": "0"}, check=False)
        if not self.report.exists():
            raise WarplensError(
                f"nsys ended with code {done.returncode} and no report; `nsys status -e` says what is off"
            )
        return companion.Found(files=[self.report], document={"report": str(self.report)})
