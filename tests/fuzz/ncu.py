"""Nsight Compute's CSV pages with damaged text: raw, details and source."""

from __future__ import annotations

import csv
import gzip
import io
import random
from functools import cache
from pathlib import Path

from tests.fuzz.harness import damage
from tests.support.paths import GOLDEN
from warplens.analyse.ncu import match_kernel
from warplens.runner.nsight_compute import find_source_pages, read_ncu

_CELLS = ("", "nan", "inf", "-1", "1e400", "1,234.5", "n/a", '"', '""', "\0", "%", "\x1b[2J", "9" * 400, "é", "-0",
          "ID", "Kernel Name", "Metric Name", "Source", "Address", "#", "0x", "\r", "-9" * 99, "\n")  # fmt: skip
_LONG = "x" * 140_000
"""Longer than the field limit of Python's csv module."""
_ROWS, _COLUMNS = 30, 60


def case(draw: random.Random, folder: Path) -> None:
    """Damage real pages and read them."""
    path = folder / "r.csv"
    whole = draw.choice(_files())
    path.write_bytes(damage(whole, draw) if draw.random() < 0.5 else _odd_cells(whole, draw))
    if (pages := find_source_pages(path)) is not None:
        for page in pages:
            assert page.fingerprint is not None
            assert all(row.samples == row.samples for row in page.rows)
        return
    found = read_ncu(path)
    match_kernel(found[0].kernel, ["kernel"])
    for one in found:
        assert one.bound is not None
        assert isinstance(one.groups, dict)


def _odd_cells(whole: bytes, draw: random.Random) -> bytes:
    lines = whole.decode().split("\n")
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(lines))
        cells = lines[at].split('","')
        cells[draw.randrange(len(cells))] = _LONG if draw.random() < 0.002 else draw.choice(_CELLS)
        lines[at] = '","'.join(cells)
        if draw.random() < 0.2:
            lines.insert(draw.randrange(len(lines)), lines.pop(at))
    return "\n".join(lines).encode()


@cache
def _files() -> list[bytes]:
    """The first rows of each golden page; of the raw one, which has thousands of columns, some of them."""
    texts = [file.read_text() for file in sorted(GOLDEN.rglob("*ncu*/*.csv")) + sorted(GOLDEN.rglob("*.ncu.csv"))]
    texts += [gzip.decompress(file.read_bytes()).decode() for file in sorted((GOLDEN / "ncu").glob("*_source.csv.gz"))]
    return ["\n".join(_narrow(text).split("\n")[:_ROWS]).encode() for text in texts]


def _narrow(text: str) -> str:
    """Every page with few columns, all that name the kernel or are in other pages, too."""
    rows = list(csv.reader(io.StringIO(text)))
    width = max(map(len, rows))
    if width <= _COLUMNS:
        return text
    kept = [*range(11), *range(11, width, width // _COLUMNS)]
    read = [at for at, name in enumerate(rows[0]) if "throughput.avg" in name or "stalled" in name or "limit" in name]
    kept = sorted({*kept, *read[:_COLUMNS]})
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [row[at] for at in kept if at < len(row)] for row in rows
    )
    return out.getvalue()
