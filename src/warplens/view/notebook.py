"""Traces in a notebook: a compact summary with a small timeline, and the `%%warplens` cell magic."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from markupsafe import escape

from warplens.analyse.trust import clock_line, warnings_of
from warplens.errors import UsageError, WarplensError
from warplens.trace.model import Trace
from warplens.view import svg
from warplens.view.palette import colours
from warplens.wording import duration, percent

_MOST_REGIONS = 8


def trace_html(trace: Trace) -> str:
    """Static HTML without a script: it also shows in notebooks that are not trusted, and on web sites."""
    if not len(trace):
        return f"<p>{escape(repr(trace))}</p>"
    lengths = [info.end_ns - info.begin_ns for info in trace.meta.launches]
    head = f"<b>{escape(', '.join(trace.kernels[:3]))}</b> · {len(trace):,} spans"
    if lengths:
        head += f" · {len(lengths):,} launch{'es' if len(lengths) > 1 else ''}"
        head += f" · {duration(max(lengths))}{' at most' if len(lengths) > 1 else ''}"
    notes = [*warnings_of(trace), clock_line(trace)]
    small = "".join(f'<div style="color:#808080;font-size:12px">{escape(note)}</div>' for note in notes)
    by = "warp" if len({*trace.numpy("track").tolist()[:100_000]}) <= 24 else "sm"
    top = f'<div style="font:13px system-ui,sans-serif;max-width:880px"><div>{head}</div>'
    return f"{top}{svg.timeline(trace, by=by)}{_table(trace)}{small}</div>"


def _table(trace: Trace) -> str:
    palette = dict(zip(trace.regions, colours(len(trace.regions)), strict=True))
    rows = []
    stats = trace.stats()
    for row in list(stats)[:_MOST_REGIONS]:
        cells = (f"{row.count:,}", percent(row.share), f"{row.p50:,.0f}", f"{row.p95:,.0f}", duration(row.p50_ns))
        numbers = "".join(f'<td style="text-align:right;padding:1px 10px">{cell}</td>' for cell in cells)
        mark = f'<span style="color:{palette[row.region]}">■</span>'
        rows.append(
            f'<tr><td style="text-align:left;padding:1px 10px 1px 0">{mark} {escape(row.region)}</td>{numbers}</tr>'
        )
    names = ("region", "count", "share", "p50 cycles", "p95 cycles", "p50 time")
    sides = ("text-align:left;padding:1px 10px 1px 0", *["text-align:right;padding:1px 10px"] * (len(names) - 1))
    heads = "".join(f'<th style="{side}">{name}</th>' for side, name in zip(sides, names, strict=True))
    more = len(stats) - _MOST_REGIONS
    rest = f'<div style="color:#808080">{more} more regions: trace.stats()</div>' if more > 0 else ""
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table style="border-collapse:collapse;font-size:12px">{body}</table>{rest}'


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"%%warplens: {message}; for example: %%warplens -o out.warplens --full ring")


def _parser() -> argparse.ArgumentParser:
    parser = _Arguments(prog="%%warplens", add_help=False)
    parser.add_argument("-o", "--output", default=None)
    parser.add_argument("--name", default="prof")
    parser.add_argument("--full", default="stop")
    parser.add_argument("--records-per-warp", type=int, default=None)
    return parser


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext warplens`: a `%%warplens` cell runs under a profile, shows it, and leaves `prof` and `trace`."""

    def warplens(line: str, cell: str) -> Any:
        from warplens.session import profile

        chosen = _parser().parse_args(shlex.split(line))
        outcome = None
        prof = profile(chosen.output, full=chosen.full, records_per_warp=chosen.records_per_warp)
        try:
            with prof:
                outcome = shell.run_cell(cell)
        except WarplensError as error:
            if outcome is None or outcome.success:  # else the cell's own error has been shown and is the cause
                print(f"warplens: {error}", file=sys.stderr)
            return None
        shell.user_ns[chosen.name] = prof
        if not outcome.success or not prof.enabled:
            return None
        shell.user_ns["trace"] = prof.trace
        return prof.trace

    shell.register_magic_function(warplens, "cell", "warplens")
