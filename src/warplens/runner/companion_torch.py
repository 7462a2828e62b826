"""`warplens run --torch`: run PyTorch's profiler alongside the program and merge both into one Perfetto file."""

from __future__ import annotations

import shlex

from warplens.files import check_writable
from warplens.profiling.torch_recorder import merged_path, require_torch, torch_path
from warplens.runner.companion_base import Companion, CompanionReport


class TorchCompanion(Companion):
    def check(self) -> None:
        require_torch()
        for file in (merged_path(self.path), torch_path(self.path)):
            check_writable(file, force=self.force)

    def after(self) -> CompanionReport:
        found = self.profile.torch
        lines = [] if found.aligned is None else [f"aligned with torch: {one}" for one in found.aligned.alignments]
        return CompanionReport(
            files=found.files,
            torch_summary=found.summary,
            lines=lines,
            next=[f"view {shlex.quote(str(merged_path(self.path)))}"],
            document={"torch": found.to_json()},
        )
