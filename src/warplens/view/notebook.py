"""A trace in a notebook: a compact summary with a small timeline."""

from __future__ import annotations

from markupsafe import escape

from warplens.analyse.sample_share import sample_line
from warplens.analyse.trace_quality import clock_line, rank_line, time_line, warnings_of
from warplens.trace.model import Trace
from warplens.view import svg
from warplens.view.palette import colours
from warplens.wording import duration, first_of, integer, percent, plural

_MAX_REGIONS = 8


def trace_html(trace: Trace) -> str:
    """Static HTML without a script, which also shows in untrusted notebooks and on web sites."""
    if not len(trace):
        return f"<p>{escape(repr(trace))}</p>"
    lengths = [info.end_ns - info.begin_ns for info in trace.meta.launches]
    head = f"<b>{escape(first_of(trace.kernels))}</b> · {plural(len(trace), 'span')}"
    if lengths:
        head += f" · {plural(len(lengths), 'launch')}"
        head += f" · {duration(max(lengths))}{' (longest)' if len(lengths) > 1 else ''}"
    notes = [
        *filter(None, [sample_line(trace.meta.launches), time_line(trace)]),
        *warnings_of(trace),
        clock_line(trace),
        *filter(None, [rank_line(trace)]),
    ]
    small = "".join(f'<div style="color:#808080;font-size:12px">{escape(note)}</div>' for note in notes)
    by = "warp" if len({*trace.numpy("track").tolist()[:100_000]}) <= 24 else "sm"
    top = f'<div style="font:13px system-ui,sans-serif;max-width:880px"><div>{head}</div>'
    return f"{top}{svg.timeline(trace, by=by)}{_table(trace)}{small}</div>"


def _table(trace: Trace) -> str:
    palette = dict(zip(trace.regions, colours(len(trace.regions)), strict=True))
    rows = []
    stats = trace.stats(merge_variants=True)
    for row in list(stats)[:_MAX_REGIONS]:
        cells = (f"{row.count:,}", percent(row.share), integer(row.p50), integer(row.p95), duration(row.p50_ns))
        numbers = "".join(f'<td style="text-align:right;padding:1px 10px">{cell}</td>' for cell in cells)
        mark = f'<span style="color:{palette[row.region]}">■</span>'
        rows.append(
            f'<tr><td style="text-align:left;padding:1px 10px 1px 0">{mark} {escape(row.region)}</td>{numbers}</tr>'
        )
    names = ("region", "count", "share", "p50 cycles", "p95 cycles", "p50 time")
    sides = ("text-align:left;padding:1px 10px 1px 0", *["text-align:right;padding:1px 10px"] * (len(names) - 1))
    heads = "".join(f'<th style="{side}">{name}</th>' for side, name in zip(sides, names, strict=True))
    more = len(stats) - _MAX_REGIONS
    rest = f'<div style="color:#808080">{more} more regions: trace.stats()</div>' if more > 0 else ""
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table style="border-collapse:collapse;font-size:12px">{body}</table>{rest}'
