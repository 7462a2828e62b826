"""The version of the PTX language that a text is written in, and that a driver can assemble."""

from __future__ import annotations

import re

_VERSION = re.compile(r"^(\s*\.version\s+)(\d+)\.(\d+)", re.MULTILINE)
_CUDA = re.compile(r"(\d+)\.(\d+)")
_OF_CUDA_12 = (0, 1, 2, 3, 4, 5, 5, 6, 7, 8)
"""By minor version of CUDA 12, that of PTX 8; from CUDA 13 on, PTX counts as CUDA does, four lower."""


def newest_for(cuda: str) -> tuple[int, int] | None:
    """The newest PTX that a driver of this version of CUDA assembles; None where it is not known."""
    found = _CUDA.search(cuda)
    if found is None or int(found[1]) < 12:
        return None
    major, minor = int(found[1]), int(found[2])
    return (8, _OF_CUDA_12[min(minor, 9)]) if major == 12 else (major - 4, minor)


def lowered_for(text: str, cuda: str) -> str:
    """The text in a version that a driver of this version of CUDA assembles.

    A compiler states its own version even where a kernel needs nothing new, and drivers refuse by the number alone. A
    kernel that does need something new is refused all the same.
    """
    stated, newest = _VERSION.search(text), newest_for(cuda)
    if stated is None or newest is None or (int(stated[2]), int(stated[3])) <= newest:
        return text
    return text[: stated.start(2)] + f"{newest[0]}.{newest[1]}" + text[stated.end(3) :]
