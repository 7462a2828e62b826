"""Source lines with their times. Only source files below the given folders are read, whatever paths a trace has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warplens.analyse.line_times import LineTime
from warplens.analyse.source_files import SourceText, find_source

_CONTEXT = 4


@dataclass(frozen=True)
class SourceLine:
    """`text` is None where the file was not found; then only timed lines are listed."""

    number: int
    text: str | None
    timed: LineTime | None
    gap: bool = False


@dataclass(frozen=True)
class SourceFile:
    """`path` is the file that the lines were read from, None where none was found. The lines of a file that has
    `changed` since it was recorded are not shown: those with these numbers are others now."""

    name: str
    path: Path | None
    lines: Sequence[SourceLine]
    changed: bool = False

    @property
    def found(self) -> bool:
        return self.path is not None


def listing(
    timed: Sequence[LineTime], folders: Sequence[Path], hashes: Mapping[str, str] | None = None
) -> list[SourceFile]:
    """List each file's timed lines with a few lines around them; `hashes` are those of the recorded files."""
    by_file: dict[str, dict[int, LineTime]] = {}
    for line in timed:
        by_file.setdefault(line.file, {})[line.line] = line
    return [_listed(name, lines, find_source(name, folders, hashes or {})) for name, lines in by_file.items()]


def _listed(name: str, timed: dict[int, LineTime], source: SourceText | None) -> SourceFile:
    if source is None or source.changed:
        lines = [SourceLine(number, None, line) for number, line in sorted(timed.items())]
        return SourceFile(name, None, lines, changed=source is not None)
    path, text = source.path, source.lines
    near = {at for number in timed for at in range(number - _CONTEXT, number + _CONTEXT + 1) if 1 <= at <= len(text)}
    shown, last = [], 0
    for number in sorted(near):
        shown.append(SourceLine(number, text[number - 1], timed.get(number), gap=bool(last) and number != last + 1))
        last = number
    return SourceFile(name, path, shown)
