"""Open a trace, whatever it is stored as: a `.warplens` file, a folder of them, or a raw capture."""

from __future__ import annotations

import os
from pathlib import Path

from warplens.decode import decode
from warplens.errors import CaptureError, did_you_mean
from warplens.record.capture import is_capture, read_capture
from warplens.trace import io
from warplens.trace.model import Trace


def load(path: str | os.PathLike[str]) -> Trace:
    """Load a trace from a `.warplens` file or folder, or decode a raw capture."""
    source = Path(path)
    if source.is_dir():
        return io.read(source)
    if not source.exists():
        raise CaptureError(source, "file", "does not exist", f"check the path{_similar_names(source)}")
    try:
        captured = is_capture(source)
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise CaptureError(source, "file", problem, "check its permissions") from None
    return decode(read_capture(source)) if captured else io.read(source)


def _similar_names(missing: Path) -> str:
    """A hint at traces in the same folder."""
    there = [str(found) for suffix in (io.SUFFIX, ".wlcap") for found in missing.parent.glob(f"*{suffix}")]
    return did_you_mean(str(missing), there) if there else ""
