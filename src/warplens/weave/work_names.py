"""The names of the regions of code between other regions."""

from __future__ import annotations

import re
from collections.abc import Container

WORK = "work"
"""The first word of the names of such regions."""
_NAME = re.compile(rf"{WORK} \S.*:\d+(-\d+)?")


def is_between(region: str) -> bool:
    """Whether a name is that of code between regions, which only says where it is."""
    return _NAME.fullmatch(region) is not None


def free_name(name: str, marked: Container[str]) -> str:
    """A name for code between regions that no region with marks has."""
    return name if name not in marked else f"{name} between regions"
