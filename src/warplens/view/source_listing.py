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
    """`path` is the file that the lines were read from, None where none was found."""

    name: str
    path: Path | None
    lines: Sequence[SourceLine]

    @property
    def found(self) -> bool:
        return self.path is not None


def listing(timed: Sequence[LineTime], folders: Sequence[Path]) -> list[SourceFile]:
    """List each file's timed lines with a few lines around them."""
    by_file: dict[str, dict[int, LineTime]] = {}
    for line in timed:
        by_file.setdefault(line.file, {})[line.line] = line
    return [_listed(name, lines, _find(name, folders)) for name, lines in by_file.items()]


def _listed(name: str, timed: dict[int, LineTime], path: Path | None) -> SourceFile:
    if path is None:
        return SourceFile(name, None, [SourceLine(number, None, line) for number, line in sorted(timed.items())])
    text = path.read_text(encoding="utf-8", errors="replace").splitlines()
    near = {at for number in timed for at in range(number - _CONTEXT, number + _CONTEXT + 1) if 1 <= at <= len(text)}
    shown, last = [], 0
    for number in sorted(near):
        shown.append(SourceLine(number, text[number - 1], timed.get(number), gap=bool(last) and number != last + 1))
        last = number
    return SourceFile(name, path, shown)


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """The source file of a name below one of the folders. The name comes from the trace: it may be anything."""
    wanted = Path(name)
    if wanted.suffix.lower() not in _SUFFIXES:
        return None
    for folder in folders:
        root = folder.resolve()
        for candidate in (root / wanted, root / wanted.name):
            if _is_source(candidate, root):
                return candidate.resolve()
    return None


def _is_source(candidate: Path, root: Path) -> bool:
    try:
        path = candidate.resolve()
        return path.is_relative_to(root) and path.is_file() and path.stat().st_size <= _LARGEST
    except (OSError, ValueError, RuntimeError):  # a name too long for the system, with a zero byte, or a loop of links
        return False
