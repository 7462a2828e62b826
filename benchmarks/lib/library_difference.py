"""A library packed as what differs from another one: two of CuTe's share most of their code, at other addresses.

python -m benchmarks.lib.library_difference BASE LIBRARY    make the library where its three files are
"""

from __future__ import annotations

import sys
from pathlib import Path

_PARTS = ("control", "difference", "additional")


def take_out(library: Path, base: Path) -> None:
    """Replace a library by three files from which `put_back` makes it. Needs bsdiff4, and minutes."""
    import bsdiff4.core

    parts = bsdiff4.core.diff(base.read_bytes(), library.read_bytes())
    for name, content in zip(_PARTS, parts, strict=True):
        library.with_name(f"{library.name}.{name}").write_bytes(content)
    library.unlink()


def put_back(library: Path, base: Path) -> None:
    """Make the library from the three files and its base."""
    import numpy as np

    old = np.fromfile(base, np.uint8)
    control, difference, additional = (np.fromfile(f"{library}.{name}", np.uint8) for name in _PARTS)
    made, at, taken, added = [], 0, 0, 0
    steps = control.view(np.int64)
    steps[steps < 0] = -(steps[steps < 0] & np.int64((1 << 63) - 1))  # a sign and an absolute value
    for count, more, skipped in steps.reshape(-1, 3).tolist():
        part, first, last = difference[taken : taken + count], max(at, 0), min(at + count, len(old))
        part[first - at : last - at] += old[first:last]  # bytes wrap around
        made.append(part)
        made.append(additional[added : added + more])
        at, taken, added = at + count + skipped, taken + count, added + more
    np.concatenate(made).tofile(library)


if __name__ == "__main__":
    put_back(Path(sys.argv[2]), Path(sys.argv[1]))
