"""The CuTe examples as modules."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from tests.support.paths import EXAMPLES


def example(name: str) -> Any:
    """An example's module. Triton's have the same names, so this one goes by its path."""
    spec = importlib.util.spec_from_file_location(f"cute_{name}", EXAMPLES / "cute" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
