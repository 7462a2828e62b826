"""TileLang is an optional dependency: say so when it is missing or too old."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

from warplens.errors import WarplensError

OLDEST = (0, 1, 15)
_LINE = "pip install -U 'tilelang>=0.1.15'"


def require_tilelang() -> None:
    """Raise an error that names the remedy if TileLang is missing or too old."""
    if find_spec("tilelang") is None:
        raise WarplensError(f"tilelang is not installed; install it with: {_LINE}")
    try:
        shown = metadata.version("tilelang")
    except metadata.PackageNotFoundError:
        return  # carried without its metadata
    if tuple(int(number) for number in re.findall(r"\d+", shown)[:3]) < OLDEST:
        raise WarplensError(f"tilelang {shown} is too old: warplens needs 0.1.15 or newer; {_LINE}")
