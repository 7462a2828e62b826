"""Other formats of a trace, one file per format, picked by the suffix of the path."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warplens.errors import UsageError, WarplensError, did_you_mean

if TYPE_CHECKING:
    from warplens.analyse.torch.alignment import Aligned
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


def export(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    annotate: bool | None = None,
    torch: str | os.PathLike[str] | None = None,
) -> Path:
    """Write `trace` in the format that the suffix of `path` names.

    `annotate` puts the cycles on each slice of a `.pftrace`: None does so up to ANNOTATE_LIMIT spans. `torch` names a
    trace that torch.profiler exported of the same run: it goes into the same `.pftrace`, on one clock.
    """
    if torch is not None:
        merge(trace, torch, path, force=force, annotate=annotate)
        return Path(path)
    module, function = FORMATS[suffix_of(path)].split(":")
    _write(getattr(import_module(module), function), trace, path, force=force, annotate=annotate)
    return Path(path)


def merge(
    trace: Trace,
    torch: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    annotate: bool | None = None,
) -> Aligned:
    """Write `trace` and a torch trace of the same run as one `.pftrace`; says how well their clocks were aligned."""
    from warplens.analyse.torch.alignment import align
    from warplens.analyse.torch.kineto import read_torch
    from warplens.export.merged import write_merged

    suffix = suffix_of(path)
    if suffix != ".pftrace":
        raise UsageError(f"a torch trace merges into a .pftrace, not into {suffix}")
    aligned = align(trace, read_torch(torch))
    _write(write_merged, aligned, path, force=force, annotate=annotate)
    return aligned


def _write(writer: Any, source: Any, path: str | os.PathLike[str], **options: Any) -> None:
    try:
        writer(source, Path(path), **options)
    except OSError as error:
        raise WarplensError(f"{path}: cannot be written ({error.strerror or error}); check the disk") from None
