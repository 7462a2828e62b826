"""The `%%warplens` cell magic, which `%load_ext warplens` registers."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from warplens.errors import UsageError, WarplensError
from warplens.profiling.profile import profile


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"%%warplens: {message}; for example: %%warplens -o out.warplens --full ring")


def _parser() -> argparse.ArgumentParser:
    parser = _Arguments(prog="%%warplens", add_help=False)
    parser.add_argument("-o", "--output", default=None)
    parser.add_argument("--name", default="prof")
    parser.add_argument("--full", default="stop")
    parser.add_argument("--records-per-warp", type=int, default=None)
    return parser


def load_ipython_extension(shell: Any) -> None:
    """Register the `%%warplens` cell magic: it profiles the cell, shows the trace, and sets `prof` and `trace`."""

    def warplens(line: str, cell: str) -> Any:
        chosen = _parser().parse_args(shlex.split(line))
        outcome = None
        prof = profile(chosen.output, full=chosen.full, records_per_warp=chosen.records_per_warp)
        try:
            with prof:
                outcome = shell.run_cell(cell)
        except WarplensError as error:
            if outcome is None or outcome.success:  # otherwise the cell's own error is the cause and is shown already
                print(f"warplens: {error}", file=sys.stderr)
            return None
        shell.user_ns[chosen.name] = prof
        if not outcome.success or not prof.enabled:
            return None
        shell.user_ns["trace"] = prof.trace
        return prof.trace

    shell.register_magic_function(warplens, "cell", "warplens")
