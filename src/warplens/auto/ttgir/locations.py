"""Resolve MLIR locations such as `loc(#loc12)` to lines of the author's source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.ptx.generated_lines import written_line
from warplens.ptx.syntax import unescape

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_POSITION = re.compile(r":(\d+):(\d+)")
_LIBRARY = re.compile(
    r"[/\\](?:triton[/\\](?:language|experimental|tools|runtime)|torch[/\\]_inductor|helion[/\\](?:language|runtime))[/\\]"
)
"""Library code, whose operations are attributed to the line that called it."""


@dataclass(frozen=True)
class Frame:
    """A position in a source file."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Locations:
    """The location aliases of one module."""

    def __init__(self, text: str) -> None:
        self._aliases = dict(_ALIAS.findall(text))
        self._known: dict[str, tuple[Frame, ...]] = {}

    def frames(self, location: str) -> tuple[Frame, ...]:
        """The author's frames of a location, innermost first; library frames only if there are no others."""
        if location not in self._known:
            found = tuple(self._resolve(location, 0))
            self._known[location] = tuple(f for f in found if not _LIBRARY.search(f.file)) or found[-1:]
        return self._known[location]

    def _resolve(self, text: str, depth: int) -> list[Frame]:
        text = text.strip()
        if depth > 64:
            return []
        if text.startswith("#"):
            return self._resolve(self._aliases.get(text, ""), depth + 1)
        if text.startswith("callsite("):
            callee, _, caller = _split(text[len("callsite(") : -1], " at ")
            return self._resolve(callee, depth + 1) + self._resolve(caller, depth + 1)
        if text.startswith("fused"):
            rest = text[text.find("[") + 1 : text.rfind("]")]
            while rest:
                first, _, rest = _split(rest, ",")
                frames = self._resolve(first, depth + 1)
                if frames:
                    return frames
            return []
        string = _STRING.match(text)
        if string is None:
            return []
        position = _POSITION.match(text, string.end())
        if position is not None:
            return [Frame(*written_line(unescape(string[1], 16), int(position[1])), int(position[2]))]
        if text[string.end() :].startswith("("):
            return self._resolve(text[string.end() + 1 : -1], depth + 1)
        return []


def _split(text: str, separator: str) -> tuple[str, str, str]:
    """Split `text` at the first `separator` outside brackets and strings."""
    depth, index, quoted = 0, 0, False
    while index < len(text):
        letter = text[index]
        if letter == "\\" and quoted:
            index += 1
        elif letter == '"':
            quoted = not quoted
        elif not quoted:
            if depth == 0 and text.startswith(separator, index):
                return text[:index], separator, text[index + len(separator) :]
            depth += letter in "([<"
            depth -= letter in ")]>"
        index += 1
    return text, "", ""
