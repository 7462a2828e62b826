"""ASCII replacements for characters that the output encoding lacks, instead of a UnicodeEncodeError.

UTF-8 output needs this too: file names may contain bytes that are not valid UTF-8.
"""

from __future__ import annotations

import codecs
from typing import TextIO

_REPLACEMENTS = {
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
_HANDLER = "warplens.ascii_fallback"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_REPLACEMENTS.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error(_HANDLER, _replace)


def with_ascii_fallback(stream: TextIO) -> TextIO:
    """Make a stream replace characters that it cannot encode, and return it."""
    change = getattr(stream, "reconfigure", None)
    if change is not None:
        change(errors=_HANDLER)
    return stream
