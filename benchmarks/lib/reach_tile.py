"""What the cases of libraries in benchmarks/reach.py share that come packed, by benchmarks/library_kits.py."""

from __future__ import annotations

import importlib.util
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

KITS = Path(os.environ.get("REACH_KITS", "build/kits"))
"""Where benchmarks/library_kits.py puts what a machine without a network needs."""


def use_kit(name: str) -> bool:
    """Unpack a library where it is not installed but packed; whether it was."""
    kit = KITS / f"{name}.tar.xz"
    if not kit.exists():
        return False
    folder = tempfile.mkdtemp(prefix=f"reach-{name}-")
    with tarfile.open(kit) as packed:
        packed.extractall(folder, filter="tar")
    sys.path.insert(0, folder)
    return True


def load_example(path: Path) -> Any:
    """A module of a library's examples, which are in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
