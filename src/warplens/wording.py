"""Numbers in words: the one place that rounds shares, durations and counts for the terminal and for reports.

`view/assets/format.js` rounds the same way; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_TIME_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
_BYTE_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_ES_ENDINGS = ("s", "x", "ch", "sh")
_VOWELS = "aeiou"


def percent(share: float, decimals: int = 1) -> str:
    """Format a share of one: `12.3 %`."""
    return f"{_rounded(100 * share, decimals)} %"


def change(relative: float, low: float = math.inf, high: float = math.inf) -> str:
    """Format a relative change, with its confidence interval where that is finite: `+5.0 % [+3.1, +6.9]`."""
    text = f"{100 * relative:+.1f} %"
    return f"{text} [{100 * low:+.1f}, {100 * high:+.1f}]" if math.isfinite(low) and math.isfinite(high) else text


def integer(value: float) -> str:
    """Format the nearest whole number: `1,234`."""
    return _rounded(value, 0)


def digits(value: float) -> str:
    """Format three significant digits, or the whole number where that has more: `1.23`, `45.6`, `1,234`."""
    size = abs(value)
    if size < 0.9995:
        return f"{value:.3g}"
    return _rounded(value, 2 if size < 9.995 else 1 if size < 99.95 else 0)


def duration(ns: float) -> str:
    """Format a duration in the largest unit that it fills: `131 µs`, `4.04 ms`."""
    for unit, size in _TIME_UNITS:
        if abs(ns) >= size:
            return f"{digits(ns / size)} {unit}"
    return f"{integer(ns)} ns"


def byte_size(count: float) -> str:
    """Format a number of bytes in the largest unit that it fills: `1.50 MiB`."""
    for unit, size in _BYTE_UNITS:
        if abs(count) >= size:
            return f"{digits(count / size)} {unit}"
    return f"{integer(count)} B"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: `1 warp`, `2 warps`, `3 launches`, `4 copies`."""
    return f"{count:,} {noun if count == 1 else _several(noun)}"


def first_of(names: Sequence[str], most: int = 3) -> str:
    """The first of some names: `load, store`, `qk, softmax, pv, …`."""
    return ", ".join([*names[:most], *["…"] * (len(names) > most)])


def numbered(noun: str, values: Iterable[int], most: int = 8) -> str:
    """Format numbered things: `warp 3`, `warps 0-3, 7`, `blocks 0, 33 and 4 more`."""
    known = {int(value) for value in values}
    return f"{noun if len(known) == 1 else _several(noun)} {number_ranges(known, most)}"


def _several(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith(_ES_ENDINGS) else 's'}"


def number_ranges(values: Iterable[int], most: int = 8) -> str:
    """Format a set of numbers as ranges: `0-3, 7, 9 and 4 more`."""
    ranges: list[list[int]] = []
    for value in sorted({int(value) for value in values}):
        if ranges and value == ranges[-1][-1] + 1:
            ranges[-1].append(value)
        else:
            ranges.append([value])
    texts = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges]
    rest = sum(len(run) for run in ranges[most:])
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest else "")


def _rounded(value: float, decimals: int) -> str:
    """Round half up, which JavaScript can repeat exactly; Python's own formatting rounds half to even."""
    scale = 10**decimals
    if not math.isfinite(value * scale):
        return f"{value:g}"
    return f"{math.floor(value * scale + 0.5) / scale:,.{decimals}f}"
