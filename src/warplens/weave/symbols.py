"""Names that compilers give kernels, as authors know them."""

from __future__ import annotations

import re


def plain_name(symbol: str) -> str:
    """The unqualified name in a mangled one, or the symbol itself."""
    match = re.match(r"_ZN?(?:\d+_GLOBAL__N_[^0-9]*)?", symbol)
    if not symbol.startswith("_Z") or match is None:
        return symbol
    name, rest = symbol, symbol[match.end() :]
    while length := re.match(r"\d+", rest):
        start = length.end()
        name, rest = rest[start : start + int(length[0])], rest[start + int(length[0]) :]
    return name
