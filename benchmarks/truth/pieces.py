"""The results as one archive in pieces, for machines that give back few files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

PIECE = 15_000_000
KINDS = ("*.warplens", "*.json", "*.log", "*.csv")


def write_pieces(folder: Path, target: Path, piece: int = PIECE) -> list[Path]:
    """Write the results of `folder` to TARGET.part-00, ... which `cat` joins to a .tar.gz."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=6) as archive:
        for kind in KINDS:
            for path in sorted(folder.glob(kind)):
                archive.add(path, path.name)
    data, written = stream.getvalue(), []
    for number, first in enumerate(range(0, len(data), piece)):
        written.append(target.with_name(f"{target.name}.part-{number:02}"))
        written[-1].write_bytes(data[first : first + piece])
    print(f"{len(data):,} bytes in {len(written)} pieces", flush=True)
    return written
