"""A small static timeline as inline SVG, without a script."""

from __future__ import annotations

from itertools import groupby

from markupsafe import escape

from warplens.analyse.timeline import strips
from warplens.trace.model import Trace
from warplens.view.palette import colours
from warplens.wording import duration

_TOP = 4
_AXIS = 18
_MAX_ROWS = 40


def timeline(trace: Trace, *, by: str = "sm", width: int = 860, bins: int = 300, most: int = _MAX_ROWS) -> str:
    """Draw rows over time; each cell shows the region that most warps of the row were in."""
    found = strips(trace, by, bins)
    rows = min(len(found.rows.labels), most)
    height = 12 if rows <= 12 else 7 if rows <= 24 else 5
    palette = colours(len(found.regions))
    left = 10 + 6 * max((len(label) for label in found.rows.labels[:rows]), default=0)
    each = (width - left) / bins
    total = _TOP + rows * (height + 1) + _AXIS
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="100%" role="img" '
        f'style="max-width:{width}px" aria-label="Timeline of {len(trace):,} spans" '
        'font-family="system-ui, sans-serif" font-size="10">'
    ]
    for row in range(rows):
        y = _TOP + row * (height + 1)
        if height >= 10 or row % 2 == 0:
            parts.append(f'<text x="0" y="{y + height - 1}" fill="#808080">{escape(found.rows.labels[row])}</text>')
        end = 0
        for code, cells in groupby(found.dominant[row].tolist()):
            begin, end = end, end + len(list(cells))
            if code < 0:
                continue
            x, wide = left + begin * each, (end - begin) * each
            title = escape(f"{found.regions[code]}, {duration(found.begin + begin * found.bin_ns)}")
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{height}" fill="{palette[code]}">'
                f"<title>{title}</title></rect>"
            )
    for at in range(5):
        x = left + (width - left) * at / 4
        anchor = ("start", "middle", "middle", "middle", "end")[at]
        time = duration(found.begin + (found.end - found.begin) * at / 4)
        parts.append(f'<text x="{x:.0f}" y="{total - 4}" fill="#808080" text-anchor="{anchor}">{time}</text>')
    more = len(found.rows.labels) - rows
    return "".join([*parts, "</svg>", f'<div style="color:#808080">{more:,} more rows</div>' if more else ""])
