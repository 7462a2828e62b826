"""Resolve `.loc` directives to the source lines of the author."""

from __future__ import annotations

import re

MAX_INLINED = 64
"""How many levels of inlined library code are followed to the line that calls it."""
_LIBRARY = re.compile(r"/(include|tl_templates|cuda/tile|triton/(language|experimental)|torch/_inductor)/")
"""Folders of library code: headers of CUDA and CUTLASS, and what TileLang, cuTile, Triton and Inductor call."""


class SourceLines:
    """Resolves `.loc` directives; code inlined from a library is attributed to the line that calls it."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.callers: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(self, arguments: str) -> tuple[str, int] | None:
        own, _, caller = arguments.partition("inlined_at")
        place, outer = tuple(own.replace(",", " ").split()[:3]), tuple(caller.split()[:3])
        if outer:
            self.callers[place] = outer
        for _ in range(MAX_INLINED):
            if place not in self.callers or not _LIBRARY.search("/" + self.files.get(place[0], "")):
                break
            place = self.callers[place]
        # Line 0 is code that the compiler generated.
        known = len(place) > 1 and place[0] in self.files and place[1].isdecimal() and place[1].strip("0")
        return (self.files[place[0]], int(place[1])) if known else None
