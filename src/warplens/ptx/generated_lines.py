"""Lines of Python that another compiler generated, as lines of the source that it was generated from.

Helion writes a comment with the file and line above each statement that it generates: `# src[softmax.py:12]: ...`.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from bisect import bisect_right

_GENERATED = re.compile(r"^from helion\b|^import helion\b", re.MULTILINE)
_COMMENT = re.compile(r"\s*# src\[(?P<file>[^\]]+?):(?P<line>\d+)(?:-\d+)?\]: ")
_FUNCTION = re.compile(r"\s*(?:def |@)")


def written_line(path: str, line: int) -> tuple[str, int]:
    """The file and line that somebody wrote; those given where a line is not generated."""
    origins = _origins(path)
    at = bisect_right(origins, (line, "\U0010ffff", 0)) - 1
    name, written = origins[at][1:] if at >= 0 else ("", 0)
    return (_full_path(name), written) if name else (path, line)


@functools.lru_cache(maxsize=64)
def _origins(path: str) -> list[tuple[int, str, int]]:
    """The lines of a generated file from which on a written line is meant. The first of several comments in a row is
    that of the statement below; the others show what is inside it. A function begins where its first statement does."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (OSError, ValueError):  # the name comes from PTX and may hold a zero byte
        return []
    found: list[tuple[int, str, int]] = []
    inside = False
    for number, line in enumerate(text.splitlines() if _GENERATED.search(text) else (), 1):
        comment = _COMMENT.match(line)
        if comment and not inside:
            origin = comment["file"], int(comment["line"])
            if found and not found[-1][1]:
                found[-1] = (found[-1][0], *origin)
            found.append((number, *origin))
        elif _FUNCTION.match(line):
            found.append((number, "", 0))
        inside = comment is not None
    return found


def _full_path(name: str) -> str:
    """The path of the one module with this file name; the name where there is none, or more than one."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    found = {os.path.abspath(file) for file in files if isinstance(file, str) and os.path.basename(file) == name}
    return found.pop() if len(found) == 1 else name
