"""Open a trace, whatever it is stored as: a `.warplens` file, a folder of them, or a raw capture."""

from __future__ import annotations

import os
from pathlib import Path

from warplens.decode import decode
from warplens.errors import CaptureError, did_you_mean
from warplens.record.capture import is_capture, read_capture
from warplens.trace import io
from warplens.trace.dataset import Dataset, RowSelection
from warplens.trace.merge import TimeAxis
from warplens.trace.model import Condition, Trace


def load(
    path: str | os.PathLike[str],
    *,
    time: tuple[float | None, float | None] | None = None,
    **conditions: Condition | None,
) -> Trace:
    """Load a trace from a `.warplens` file or folder, or decode a raw capture.

    With conditions as `Trace.select` takes them, only the row groups that may meet them are read: one kernel of one of
    1,000 ranks costs no more than its own rows.
    """
    source, selection = Path(path), RowSelection.of(time, **conditions)
    if source.is_dir():
        return Dataset.open(source).select(selection) if selection else io.read(source)
    if not source.exists():
        raise CaptureError(source, "file", "does not exist", f"check the path{_similar_names(source)}")
    if not source.is_file():
        raise CaptureError(source, "file", "is a pipe or a device", "write its content to a file, and name that")
    try:
        captured = is_capture(source)
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise CaptureError(source, "file", problem, "check its permissions") from None
    if captured:
        decoded = decode(read_capture(source))
        return selection.of_part(decoded, TimeAxis.of([decoded.meta]))
    return Dataset.open(source).select(selection) if selection else io.read(source)


def _similar_names(missing: Path) -> str:
    """A hint at traces in the same folder."""
    there = [str(found) for suffix in (io.SUFFIX, ".wlcap") for found in missing.parent.glob(f"*{suffix}")]
    return did_you_mean(str(missing), there) if there else ""
