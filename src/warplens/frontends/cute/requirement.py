"""The CuTe DSL is an extra: say so when it is missing or too old."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

from warplens.errors import WarplensError

OLDEST = (4, 5, 3)
_LINE = "pip install -U 'nvidia-cutlass-dsl>=4.5.3'"


def require_cute() -> None:
    """Refuse clearly when the CuTe DSL cannot be imported or is older than what warplens knows."""
    if find_spec("cutlass") is None:
        raise WarplensError(f"the CuTe DSL is not installed; install it with: {_LINE}")
    version = cute_version()
    if version < OLDEST:
        shown = ".".join(map(str, version))
        raise WarplensError(f"nvidia-cutlass-dsl {shown} is too old: warplens needs 4.5.3 or newer; {_LINE}")
    if find_spec("cutlass.cute") is None:
        raise WarplensError(f"the module cutlass that Python finds is not the CuTe DSL; {_LINE}")


def cute_version() -> tuple[int, ...]:
    """The installed version; one carried without its metadata counts as new enough."""
    try:
        text = metadata.version("nvidia-cutlass-dsl")
    except metadata.PackageNotFoundError:
        return OLDEST
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
