"""Runs at the start of every Python process that a program under `warplens run` starts: its folder is on PYTHONPATH.

It only waits for torch.distributed to be imported, and imports nothing of warplens before that.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

_REQUEST = "WARPLENS_RANKS"


def _run_the_one_behind(here: str) -> None:
    """Run the sitecustomize that this one hides."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _WaitForTorch(MetaPathFinder):
    """Lets warplens look on once something imports torch.distributed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch.distributed":
            return None
        sys.meta_path.remove(self)
        try:
            from warplens.runner.rank_process import watch

            watch(os.environ.get(_REQUEST, ""))
        except Exception as error:  # the program does not know of warplens
            print(f"warplens: this process is not recorded: {error!r}", file=sys.stderr)
        return importlib.util.find_spec(name)  # with what looks on now


_version, _, _ = os.environ.get(_REQUEST, "").partition(":")
if _version == f"{sys.version_info[0]}.{sys.version_info[1]}" and os.environ.get("WARPLENS", "") != "0":
    sys.meta_path.insert(0, _WaitForTorch())
_run_the_one_behind(os.path.dirname(os.path.abspath(__file__)))
