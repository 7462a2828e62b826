"""Find the source files that a trace names, and say whether they are still what they were when it was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warplens.files import content_hash

SUFFIXES = {".py", ".cu", ".cuh", ".cc", ".cpp", ".cxx", ".c", ".h", ".hpp", ".inl", ".ptx"}
_LARGEST = 4 << 20


@dataclass(frozen=True)
class SourceText:
    """The lines of a file. `changed` says that they are not those that were recorded: then a line number of the trace
    may stand for another line."""

    path: Path
    lines: Sequence[str]
    changed: bool = False


def find_source(name: str, folders: Sequence[Path], hashes: Mapping[str, str]) -> SourceText | None:
    """The source file of a name below one of the folders. The name comes from the trace: it may be anything."""
    wanted = Path(name)
    if wanted.suffix.lower() not in SUFFIXES:
        return None
    for folder in folders:
        root = folder.resolve()
        for candidate in (root / wanted, root / wanted.name):
            if _is_source(candidate, root):
                path = candidate.resolve()
                data = path.read_bytes()
                known = hashes.get(name)
                text = data.decode("utf-8", errors="replace").splitlines()
                return SourceText(path, text, known is not None and known != content_hash(data))
    return None


def _is_source(candidate: Path, root: Path) -> bool:
    try:
        path = candidate.resolve()
        return path.is_relative_to(root) and path.is_file() and path.stat().st_size <= _LARGEST
    except (OSError, ValueError, RuntimeError):  # a name too long for the system, with a zero byte, or a loop of links
        return False
