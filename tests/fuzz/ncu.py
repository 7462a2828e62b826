"""Nsight Compute's CSV output with damaged text."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from tests.fuzz.harness import damage, run_cases
from tests.support.paths import GOLDEN
from warplens.analyse.ncu import match_kernel
from warplens.runner.nsight_compute import read_ncu

_CELLS = ("", "nan", "inf", "-1", "1e400", "1,234.5", "n/a", '"', '""', "\0", "%", "\x1b[2J", "9" * 400, "é", "-0")


def run(cases: int, seed: int) -> None:
    """Damage real reports and read them."""
    run_cases(_case, cases, seed)


def _case(draw: random.Random, folder: Path) -> None:
    path = folder / "r.csv"
    whole = draw.choice(_files())
    path.write_bytes(damage(whole, draw) if draw.random() < 0.5 else _odd_cells(whole, draw))
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
        cells[draw.randrange(len(cells))] = draw.choice(_CELLS)
        lines[at] = '","'.join(cells)
        if draw.random() < 0.2:
            lines.insert(draw.randrange(len(lines)), lines.pop(at))
    return "\n".join(lines).encode()


@cache
def _files() -> list[bytes]:
    return [file.read_bytes() for file in sorted((GOLDEN / "ncu").glob("*.csv"))]
