"""Names are data: texts that come from a program or a file, made safe where a person or a spreadsheet reads them."""

from __future__ import annotations

import re
import sys
from contextlib import suppress

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f"  # C0 but tab and newline: ESC starts sequences that move the cursor or write the clipboard
    "\x7f-\x9f"  # DEL and C1, which holds eight-bit forms of the same sequences
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"  # zero width, line separators, bidirectional overrides
    "\ud800-\udfff"  # lone surrogates, which no encoding can write
    "]"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the begin of a formula."""


_BREAK_ESCAPES = {"\n": "\\n", "\r": "\\r", "\v": "\\v", "\f": "\\f"}
_BREAKS = re.compile("[\n\r\v\f]")


def printable(text: str) -> str:
    """The text with `\\x1b` and the like for each character that would steer a terminal or hide from a reader."""
    return _UNSAFE.sub(lambda found: _escaped(found[0]), text)


def encodable(text: str) -> str:
    """The text with `\\udc80` for each lone surrogate, which no encoding of Unicode can write."""
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(name: str) -> str:
    """An encodable name, with `\\n` and the like for line breaks, by which it could look like other output."""
    return _BREAKS.sub(lambda found: _BREAK_ESCAPES[found[0]], encodable(name))


def spreadsheet_text(text: str) -> str:
    """The text with an apostrophe before what a spreadsheet would run as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def say(text: object) -> None:
    """Print a message on stderr; a program that closed its stderr goes on without it."""
    with suppress(OSError, ValueError):
        print(printable(f"warplens: {text}"), file=sys.stderr, flush=True)


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
