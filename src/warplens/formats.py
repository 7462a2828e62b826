"""The formats that a trace can be exported to, listed once. To add one, write its exporter and add a line here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """`writer` names `function(trace, path, *, force, annotate)` as `module:function`; it is imported when used."""

    suffix: str
    writer: str
    description: str
    timeline: bool = False
    """Whether it shows when each span began."""


FORMATS = {
    one.suffix: one
    for one in (
        Format(".pftrace", "warplens.export.perfetto:write", "Perfetto", timeline=True),
        Format(".json", "warplens.export.chrome:write", "Chrome trace events", timeline=True),
        Format(".json.gz", "warplens.export.chrome:write", "Chrome trace events, compressed", timeline=True),
        Format(".hatchet", "warplens.export.hatchet:write", "call tree for Hatchet and proton-viewer"),
        Format(".csv", "warplens.export.table:write_csv", "table of spans as text"),
        Format(".parquet", "warplens.export.table:write_parquet", "table of spans"),
        Format(".html", "warplens.view.html:write", "self-contained report"),
        Format(".png", "warplens.view.figures:write", "image of the timeline"),
        Format(".svg", "warplens.view.figures:write", "image of the timeline"),
    )
}


def format_of(name: str) -> Format | None:
    """The format that a file's name asks for by its suffix; None where no format has it."""
    fitting = [one for suffix, one in FORMATS.items() if name.lower().endswith(suffix)]
    return max(fitting, key=lambda one: len(one.suffix), default=None)
