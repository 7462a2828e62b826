"""The CuTe DSL is an extra: say so when it is missing or too old."""

from __future__ import annotations

from importlib.util import find_spec

from warplens.errors import WarplensError
from warplens.installed import OLDEST, require

_PACKAGE = "nvidia-cutlass-dsl"


def require_cute() -> None:
    """Raise an error that names the remedy if the CuTe DSL cannot be imported or is too old."""
    require("the CuTe DSL", "cutlass", _PACKAGE)
    if find_spec("cutlass.cute") is None:
        line = f"pip install -U '{_PACKAGE}>={OLDEST[_PACKAGE]}'"
        raise WarplensError(f"the module cutlass that Python finds is not the CuTe DSL; {line}")
