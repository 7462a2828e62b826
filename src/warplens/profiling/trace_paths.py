"""Where a profile writes its trace."""

from __future__ import annotations

import os
from pathlib import Path

from warplens.errors import UsageError
from warplens.files import check_writable
from warplens.formats import FORMATS


def trace_path(path: str | os.PathLike[str], *, dataset: bool) -> Path:
    """Where a profile may write: a trace under the name of another format would be read as that.

    The ranks of a job write into one folder (`dataset`).
    """
    target = check_writable(path, force=True)
    if dataset and target.is_file():
        raise UsageError(f"{target}: is a file, but the ranks of a job write into a folder; choose another name")
    if target.is_dir() and not dataset:
        raise UsageError(f"{target}: is a folder; name the file to write, such as {target / 'kernel.warplens'}")
    if any(target.name.lower().endswith(suffix) for suffix in FORMATS if suffix != ".parquet"):
        raise UsageError(
            f"{target}: a profile writes a trace, such as {target.stem}.warplens; `warplens export` makes other formats"
        )
    return target.absolute()  # a program may change its working directory before the trace is written


def last_records_path(path: Path) -> Path:
    """Where the last records beside the statistics in `path` are written."""
    return path.with_name(f"{path.stem}.last{path.suffix}")
