"""Source lines with their times. Only source files below the given folders are read, whatever paths a trace has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warplens.analyse.line_times import LineTime

_SUFFIXES = {".py", ".cu", ".cuh", ".cc", ".cpp", ".cxx", ".c", ".h", ".hpp", ".inl", ".ptx"}
_CONTEXT = 4
_LARGEST = 4 << 20


@dataclass(frozen=True)
class SourceLine:
    """`text` is None where the file was not found; then only timed lines are listed."""

    number: int
    text: str | None
    timed: LineTime | None
    gap: bool = False


@dataclass(frozen=True)
class SourceFile:
    name: str
    found: bool
    lines: Sequence[SourceLine]


def listing(timed: Sequence[LineTime], folders: Sequence[Path]) -> list[SourceFile]:
    """List each file's timed lines with a few lines around them."""
    by_file: dict[str, dict[int, LineTime]] = {}
    for line in timed:
        by_file.setdefault(line.file, {})[line.line] = line
    return [_listed(name, lines, _read(name, folders)) for name, lines in by_file.items()]


def _listed(name: str, timed: dict[int, LineTime], text: list[str] | None) -> SourceFile:
    if text is None:
        return SourceFile(name, False, [SourceLine(number, None, line) for number, line in sorted(timed.items())])
    near = {at for number in timed for at in range(number - _CONTEXT, number + _CONTEXT + 1) if 1 <= at <= len(text)}
    shown, last = [], 0
    for number in sorted(near):
        shown.append(SourceLine(number, text[number - 1], timed.get(number), gap=bool(last) and number != last + 1))
        last = number
    return SourceFile(name, True, shown)


def _read(name: str, folders: Sequence[Path]) -> list[str] | None:
    wanted = Path(name)
    if wanted.suffix.lower() not in _SUFFIXES:
        return None
    for folder in folders:
        root = folder.resolve()
        for candidate in (root / wanted, root / wanted.name):
            path = candidate.resolve()
            if path.is_relative_to(root) and path.is_file() and path.stat().st_size <= _LARGEST:
                return path.read_text(encoding="utf-8", errors="replace").splitlines()
    return None
