"""Hashes of the source files that a trace names, taken while they are what was compiled."""

from __future__ import annotations

from pathlib import Path

from warplens.analyse.line_times import parse
from warplens.files import content_hash
from warplens.trace.schema import Meta

_LARGEST = 4 << 20


def hash_sources(meta: Meta) -> dict[str, str]:
    """The hash of every file of the trace's locations that can be read."""
    places = [meta.locations, *meta.kernel_locations.values()]
    files = {found[0] for texts in places for text in texts.values() if (found := parse(text))}
    hashes = {file: _hash(file) for file in sorted(files)}
    return {file: known for file, known in hashes.items() if known}


def _hash(file: str) -> str:
    path = Path(file)
    try:
        return content_hash(path.read_bytes()) if path.is_file() and path.stat().st_size <= _LARGEST else ""
    except (OSError, ValueError):
        return ""
