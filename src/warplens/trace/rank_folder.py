"""The folder of a job whose ranks write a part each: who takes a part, who took one, and how to start anew."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from warplens.trace.io import rank_part

_CLAIM = "_running"
"""Beside the part of a rank that runs. Readers of such folders pass over names with `_` in front."""


def claim_rank(folder: Path, rank: int, *, force: bool = False) -> Path | None:
    """Take the part of a rank for this process; None where it was taken. The file that is returned says so until it is
    removed. With `force`, the part of an earlier run is replaced."""
    part = rank_part(folder, rank)
    claim = part.with_name(_CLAIM)
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.exists() and not force:
        return None
    try:
        with open(claim, "w" if force else "x") as out:
            out.write(f"{os.getpid()}\n")
    except FileExistsError:
        return None
    return claim


def ranks_in(folder: Path) -> list[int]:
    """The ranks that took a part of the folder, also those that wrote nothing."""
    found = (re.fullmatch(r"rank=(\d+)", one.name) for one in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(one[1]) for one in found if one)


def remove_ranks(folder: Path) -> None:
    """Remove the parts of an earlier run, and the folder if it held nothing else."""
    for rank in ranks_in(folder):
        part = rank_part(folder, rank)
        # A rank that was killed while it wrote a part leaves a hidden file of it.
        for file in (part, part.with_name(_CLAIM), *part.parent.glob(f".{part.name}.*")):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # the user may keep files there
            part.parent.rmdir()
    with suppress(OSError):
        folder.rmdir()
