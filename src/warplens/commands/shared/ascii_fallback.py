"""Output whose encoding lacks a letter: a plain one in its place, never a traceback. UTF-8 itself lacks the bytes of
file names that are not UTF-8."""

from __future__ import annotations

import codecs
from typing import TextIO

_PLAIN = {
    "µ": "u",
    "×": "x",
    "±": "+-",
    "·": "-",
    "…": "...",
    "²": "^2",
    "³": "^3",
    "→": "->",
    **dict(zip("▁▂▃▄▅▆▇█", ".:-=+*%#", strict=True)),
    **dict(zip("│─├└┃━", "|-|`|-", strict=True)),
}
_NAME = "warplens.plain"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error(_NAME, _replace)


def with_ascii_fallback(stream: TextIO) -> TextIO:
    """The same stream, which from now on writes any text. Python itself would raise in the middle of a table."""
    change = getattr(stream, "reconfigure", None)
    if change is not None:
        change(errors=_NAME)
    return stream
