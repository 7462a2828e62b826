"""Colours that suit any colour vision: those of Okabe and Ito, then lighter and darker shades of them."""

from __future__ import annotations

from collections.abc import Sequence

BASE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8A8F98")
_SHADES = ((0.0, 255), (0.45, 255), (0.38, 0))
"""For each round of the base colours, how far to mix them and with what: unchanged, towards white, towards black."""


def colours(count: int) -> list[str]:
    """One colour per region, by position: a region has the same colour in every view."""
    return [colour(at) for at in range(count)]


def colour(at: int) -> str:
    amount, target = _SHADES[at // len(BASE) % len(_SHADES)]
    return "#" + "".join(f"{round(part * (1 - amount) + target * amount):02X}" for part in rgb(BASE[at % len(BASE)]))


def ink(fill: str) -> str:
    """Black or white, whichever is more legible on `fill`."""
    red, green, blue = rgb(fill)
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#FFFFFF"


def rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def union(*names: Sequence[str]) -> list[str]:
    """All names in order of first appearance, so that compared traces share their colours."""
    return list(dict.fromkeys(name for group in names for name in group))
