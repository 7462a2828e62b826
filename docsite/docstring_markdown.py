"""Docstrings as Markdown: examples become code, and aligned lists of options become tables."""

from __future__ import annotations

import re
import textwrap

_ROW = re.compile(r"^(?P<names>\w[\w, ]*?) {2,}(?P<meaning>\S.*)$")


def markdown_of(docstring: str) -> str:
    """A cleaned docstring as Markdown."""
    parts = re.split(r"\n\s*\n", docstring.strip("\n"))
    return "\n\n".join(_part(part) for part in _joined_code(parts))


def _joined_code(parts: list[str]) -> list[str]:
    """Parts where an example with empty lines inside is one part."""
    joined: list[str] = []
    for part in parts:
        if joined and part.startswith("    ") and joined[-1].startswith("    "):
            joined[-1] += "\n\n" + part
        else:
            joined.append(part)
    return joined


def _part(part: str) -> str:
    lines = part.splitlines()
    if all(line.startswith("    ") or not line for line in lines):
        return f"<!-- fragment -->\n```python\n{textwrap.dedent(part).rstrip()}\n```"
    first = next((number for number, line in enumerate(lines) if _ROW.match(line)), None)
    if first is None or first > 1:
        return part
    title = f"**{lines[0].rstrip(':')}**\n\n" if first else ""
    return title + _table(lines[first:])


def _table(lines: list[str]) -> str:
    rows: list[list[str]] = []
    for line in lines:
        if row := _ROW.match(line):
            rows.append([f"`{row['names']}`", row["meaning"]])
        else:
            rows[-1][1] += " " + line.strip()
    return table(("name", "meaning"), rows)


def table(header: tuple[str, ...], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
