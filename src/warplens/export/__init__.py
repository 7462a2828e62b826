"""Other formats of a trace, one file per format, picked by the suffix of the path."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warplens.errors import UsageError, WarplensError, did_you_mean

if TYPE_CHECKING:
    from warplens.trace.model import Trace

FORMATS = {
    ".pftrace": "warplens.export.perfetto:write",
    ".json": "warplens.export.chrome:write",
    ".json.gz": "warplens.export.chrome:write",
    ".hatchet": "warplens.export.hatchet:write",
    ".csv": "warplens.export.table:write_csv",
    ".parquet": "warplens.export.table:write_parquet",
    ".html": "warplens.view.html:write",
    ".png": "warplens.view.plot:write",
    ".svg": "warplens.view.plot:write",
}
"""Suffix to `module:function(trace, path, *, force, annotate)`, imported when first used."""

ANNOTATE_LIMIT = 200_000
"""Spans up to which every slice carries its cycles unless told otherwise: beyond, they double the file."""


def suffix_of(path: str | os.PathLike[str]) -> str:
    """The suffix of FORMATS that `path` ends with."""
    name = Path(path).name.lower()
    for suffix in sorted(FORMATS, key=len, reverse=True):
        if name.endswith(suffix):
            return suffix
    given = Path(path).suffix
    allowed = ", ".join(FORMATS)
    if not given:
        raise UsageError(f"{path}: the suffix picks the format and this name has none; use one of {allowed}")
    hint = did_you_mean(given.lower(), FORMATS)
    raise UsageError(f"{path}: no exporter for {given!r}{hint if 'known' not in hint else ''}; use one of {allowed}")


def export(trace: Trace, path: str | os.PathLike[str], *, force: bool = True, annotate: bool | None = None) -> Path:
    """Write `trace` in the format that the suffix of `path` names.

    `annotate` puts the cycles on each slice of a `.pftrace`: None does so up to ANNOTATE_LIMIT spans.
    """
    module, function = FORMATS[suffix_of(path)].split(":")
    writer: Any = getattr(import_module(module), function)
    target = Path(path)
    try:
        writer(trace, target, force=force, annotate=annotate)
    except OSError as error:
        raise WarplensError(f"{target}: cannot be written ({error.strerror or error}); check the disk") from None
    return target
