"""Resolve `.loc` directives to the source lines of the author."""

from __future__ import annotations

import re

from warplens.ptx.generated_lines import written_line

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
        return next(iter(self.stack(arguments)), None)

    def stack(self, arguments: str) -> tuple[tuple[str, int], ...]:
        """The line, then the lines of the calls that it was inlined by, innermost first."""
        own, _, caller = arguments.partition("inlined_at")
        place, outer = tuple(own.replace(",", " ").split()[:3]), tuple(caller.split()[:3])
        if outer:
            self.callers[place] = outer
        elif place not in self.callers:
            line = self._known(place)
            return () if line is None else (line,)
        places = [place]
        while place in self.callers and len(places) <= MAX_INLINED:
            place = self.callers[place]
            places.append(place)
        while len(places) > 1 and _LIBRARY.search("/" + self.files.get(places[0][0], "")):
            del places[0]
        found = [self._known(place) for place in places]
        return tuple(one for one in found if one is not None) if found[0] is not None else ()

    def _known(self, place: tuple[str, ...]) -> tuple[str, int] | None:
        # Line 0 is code that the compiler generated.
        known = len(place) > 1 and place[0] in self.files and place[1].isdecimal() and place[1].strip("0")
        if not known:
            return None
        file, line = self.files[place[0]], int(place[1])
        return written_line(file, line) if file.endswith(".py") else (file, line)
