"""`warplens run --torch`: PyTorch's profiler beside the run, and one Perfetto file of both."""

from __future__ import annotations

import shlex

from warplens.files import check_writable
from warplens.profiling.torch_recorder import merged_path, require_torch, torch_path
from warplens.runner import companion


class Companion(companion.Companion):
    def check(self) -> None:
        require_torch()
        for file in (merged_path(self.path), torch_path(self.path)):
            check_writable(file, force=self.force)

    def after(self) -> companion.Found:
        from warplens.commands.torch_tables import torch_tables

        found = self.profile.torch
        lines = [] if found.aligned is None else [f"aligned with torch: {one}" for one in found.aligned.alignments]
        return companion.Found(
            files=found.files,
            tables=[*torch_tables(found.summary), *lines],
            next=[f"view {shlex.quote(str(merged_path(self.path)))}"],
            document={"torch": found.to_json()},
        )
