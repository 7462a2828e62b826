"""Exporters, one file per format. The suffix of the path chooses the format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warplens.analyse.executions import NO_TIMELINE
from warplens.errors import UsageError, WarplensError, did_you_mean
from warplens.formats import FORMATS, Format, format_of

if TYPE_CHECKING:
    from warplens.analyse.torch.alignment import Aligned
    from warplens.trace.model import Trace


def chosen_format(path: str | os.PathLike[str]) -> Format:
    """The format that the suffix of `path` names; an error lists the known ones."""
    if found := format_of(Path(path).name):
        return found
    given = Path(path).suffix
    allowed = ", ".join(FORMATS)
    if not given:
        raise UsageError(f"{path}: the suffix chooses the format, and this name has none; use one of {allowed}")
    hint = did_you_mean(given.lower(), FORMATS)
    raise UsageError(f"{path}: no exporter for {given!r}{hint if 'known' not in hint else ''}; use one of {allowed}")


def export(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    annotate: bool | None = None,
    torch: str | os.PathLike[str] | None = None,
    sources: Sequence[str | os.PathLike[str]] | None = None,
) -> Path:
    """Write `trace` in the format that the suffix of `path` names.

    `annotate` adds the cycles to each slice of a `.pftrace`; None does so up to 200,000 spans. `torch` names a
    trace of the same run that torch.profiler exported; both are written to one `.pftrace`, on one clock. `sources` are
    the folders that a `.html` may read the kernels' source from; by default the working directory.
    """
    if trace.aggregated and (torch is not None or chosen_format(path).timeline):
        suffixes = ", ".join(one.suffix for one in FORMATS.values() if not one.timeline)
        raise UsageError(f"{path}: {NO_TIMELINE}; it can be exported to {suffixes}")
    if torch is not None:
        merge(trace, torch, path, force=force, annotate=annotate)
        return Path(path)
    module, function = chosen_format(path).writer.split(":")
    if sources is not None and chosen_format(path).suffix != ".html":
        raise UsageError(f"{path}: sources= is for an .html report")
    more = {} if sources is None else {"sources": [Path(folder) for folder in sources]}
    _write(getattr(import_module(module), function), trace, path, force=force, annotate=annotate, **more)
    return Path(path)


def merge(
    trace: Trace,
    torch: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    annotate: bool | None = None,
) -> Aligned:
    """Write `trace` and a torch trace of the same run as one `.pftrace`, and return how they were aligned."""
    from warplens.analyse.torch.alignment import align
    from warplens.analyse.torch.kineto import read_torch
    from warplens.export.merged import write_merged

    suffix = chosen_format(path).suffix
    if suffix != ".pftrace":
        raise UsageError(f"a torch trace can be merged into a .pftrace, not into {suffix}")
    aligned = align(trace, read_torch(torch))
    _write(write_merged, aligned, path, force=force, annotate=annotate)
    return aligned


def _write(writer: Any, source: Any, path: str | os.PathLike[str], **options: Any) -> None:
    try:
        writer(source, Path(path), **options)
    except OSError as error:
        raise WarplensError(f"{path}: cannot be written ({error.strerror or error}); check the disk") from None
