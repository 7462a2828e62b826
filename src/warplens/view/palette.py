"""Colours that suit any colour vision: those of Okabe and Ito, then lighter and darker shades of them."""

from __future__ import annotations

from collections.abc import Sequence

BASE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8A8F98")
_INKS = ("#000000", "#FFFFFF")
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
    return max(_INKS, key=lambda text: contrast(text, fill))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it, 1 to 21; text needs at least 4.5."""
    dark, bright = sorted((_luminance(one), _luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def _luminance(text: str) -> float:
    shares = (part / 255 for part in rgb(text))
    linear = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def union(*names: Sequence[str]) -> list[str]:
    """All names in order of first appearance, so that compared traces share their colours."""
    return list(dict.fromkeys(name for group in names for name in group))
